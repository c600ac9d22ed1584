import { expect, run, showCommand } from './page.mjs';

const { NAMESPACE: namespace } = process.env;

await run(async ({ page, open, checkAccessibility }) => {
  await open(`/console/terminal/member1/${namespace}/shell`);
  await page.getByLabel('Session').selectOption('debug');
  await page.getByLabel('Processes of').selectOption('shell');
  await page.getByLabel('Image').fill('debug-image');
  await page.getByRole('textbox', { name: 'Command' }).fill(`sh -c 'echo "I debug"; exec sh'`);
  const command = await showCommand(page);
  const want = `kubectl --context member1 debug -n ${namespace} -it shell --image=debug-image --target=shell -- ` +
    `sh -c 'echo "I debug"; exec sh'`;
  if (command !== want) {
    throw new Error(`kubectl: ${command}`);
  }
  await checkAccessibility(page);

  // A view that the user has left changes nothing when the container is created.
  let answer;
  const isCreated = new Promise((resolve) => {
    void page.route('**/ephemeralcontainers', (route) => {
      answer = () => route.fulfill({ json: {} });
      resolve();
    }, { times: 1 });
  });
  const form = page.url();
  await page.getByRole('button', { name: 'Create and attach' }).click();
  await isCreated;
  await page.getByRole('link', { name: 'Clusters', exact: true }).click();
  await page.getByRole('rowheader', { name: 'member1' }).waitFor();
  const answered = page.waitForResponse('**/ephemeralcontainers');
  await answer();
  await (await answered).finished();
  await page.evaluate(() => fetch('/console/config.json').then((response) => response.text()));
  expect(new URL(page.url()).pathname, '/console/clusters', 'the view that the user went to');
  await page.goBack();
  expect(page.url(), form, 'the URL of the terminal');

  await page.getByRole('button', { name: 'Create and attach' }).click();
  await page.getByText(/^Connected/).waitFor();
  if (!/mode=attach&container=debugger-/.test(page.url())) {
    throw new Error(`the URL is ${page.url()}`);
  }
  await page.keyboard.type('echo $((6*7))\n');
  await page.waitForFunction(() => document.querySelector('.xterm-rows').textContent.includes('42'));
  await page.keyboard.type('exit 4\n');
  await page.getByText(/^The container ended: .*exit status 4$/).waitFor();
});
