import { join } from 'node:path';
import { run, showCommand } from './page.mjs';

const { NAMESPACE: namespace, DOWNLOADS: downloads } = process.env;

await run(async ({ page, open, step, checkAccessibility, screenshot }) => {
  await open(`/console/logs?namespace=${namespace}&labelSelector=app%3Dscribe`);
  const paneOf = (cluster) => page.getByRole('region', { name: `Log of ${cluster} / ${namespace} / scribe / main` });
  const [first, second] = [paneOf('member1'), paneOf('member2')];
  for (const pane of [first, second]) {
    await pane.getByText('Following', { exact: true }).waitFor();
    await pane.getByText('begin').waitFor();
  }
  await step('following');
  for (const pane of [first, second]) {
    await pane.getByText('number 50', { exact: true }).waitFor();
  }
  const hostile = '<img src=x onerror="hostile()"><script>hostile()</script> red \\u202e';
  await second.getByText(hostile, { exact: true }).waitFor();
  if (await page.locator('.log-pane img, .log-pane script').count() > 0) {
    throw new Error('a line of a log became HTML');
  }
  await checkAccessibility(page);
  await screenshot(page, 'logs');

  await page.keyboard.press('/');
  await page.keyboard.type('NUMBER 5');
  await first.getByText('2 of 51 lines match').waitFor();
  await page.getByLabel('Only matches').check();
  await page.waitForFunction(() => document.querySelectorAll('.log-row').length === 4);
  if (!page.url().includes('q=NUMBER+5') || !page.url().includes('only=true')) {
    throw new Error(`the URL is ${page.url()}`);
  }
  await page.reload();
  await first.getByText('2 of 51 lines match').waitFor();
  await page.getByLabel('Search the logs').fill('');
  await page.getByLabel('Only matches').uncheck();
  await page.getByLabel('Timestamps').check();
  await first.locator('time').first().waitFor();

  const command = await showCommand(page);
  const want = `kubectl --context fleet@ logs -n ${namespace} --selector=app=scribe --all-containers --prefix ` +
    '--max-log-requests=24 --follow --tail=200 --timestamps';
  if (command !== want) {
    throw new Error(`kubectl: ${command}`);
  }

  await step('cut');
  await first.getByText(/The connection was lost at/).waitFor();
  await step('lost');
  await first.getByText(/Connected again after \d+ s\. No line is missing\./).waitFor();
  await step('connected');
  await first.getByText(/ number 100$/).waitFor();
  const save = async (click, name) => {
    const [download] = await Promise.all([page.waitForEvent('download'), click()]);
    await download.saveAs(join(downloads, name));
  };
  await save(() => page.getByRole('button', { name: 'Save shown lines' }).click(), 'logs.txt');
  await save(() => second.getByRole('button', { name: 'Download' }).click(), 'whole.log');

  await second.getByRole('button', { name: /^Close/ }).click();
  await second.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Show closed logs (1)' }).click();
  await second.waitFor();
});
