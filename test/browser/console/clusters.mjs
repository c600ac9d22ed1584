// Follows a cluster that goes down and comes back.
import { expect, run } from './page.mjs';

await run(async ({ page, open, step, checkAccessibility, screenshot }) => {
  await open('/console/clusters');
  const row = page.locator('tr[data-cluster=member2]');
  await row.getByText('● ready').waitFor();
  await page.getByText('all ready, live').waitFor();
  await row.getByRole('img', { name: /^Latency of member2, now [0-9.]+ m?s$/ }).waitFor();
  await checkAccessibility(page);

  await step('live');
  await row.getByText('▲ not ready').waitFor();
  await row.getByText('unreachable', { exact: true }).waitFor();
  await row.getByText('Check that the API server runs').waitFor();
  await row.locator('.plot .gap').first().waitFor();
  await page.getByText('1 not ready').waitFor();
  await checkAccessibility(page);
  await screenshot(page, 'clusters');

  await page.getByLabel('Only problems').check();
  await page.locator('tr[data-cluster=member1]').waitFor({ state: 'detached' });
  if (!page.url().endsWith('/console/clusters?health=problems')) {
    throw new Error(`the URL ${page.url()} does not have the filter`);
  }
  await page.getByLabel('Only problems').uncheck();

  await row.getByRole('link', { name: 'member2', exact: true }).click();
  await page.getByRole('heading', { name: 'member2', level: 1 }).waitFor();
  await page.getByText('▲ not ready').waitFor();
  await checkAccessibility(page);
  // Another cluster in the same view, before its answer arrives.
  await page.route(/clusters\?fieldSelector=metadata\.name%3Dabsent/, () => undefined);
  await page.evaluate(() => {
    history.replaceState(null, '', '/console/clusters/absent');
    dispatchEvent(new PopStateEvent('popstate'));
  });
  await page.getByRole('heading', { name: 'absent', level: 1 }).waitFor();
  expect(await page.locator('.facts').count(), 0, 'facts of the cluster before');
  await page.goBack();

  await step('down');
  await row.getByText('● ready').waitFor();
  await page.getByText('all ready').waitFor();
});
