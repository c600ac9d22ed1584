import { run } from './page.mjs';

const { NAMESPACE: namespace } = process.env;

await run(async ({ page, open, step }) => {
  await open(`/console/logs?pod=member1/${namespace}/scribe`);
  await page.getByText('Following', { exact: true }).waitFor();
  await page.getByText(/^begin/).waitFor();
  await step('following');
  await page.getByText('last words').waitFor();
  await page.getByText('The container was started again (restart 1). The run before: Error, exit status 3.').waitFor();
  if (await page.getByText('last words').count() !== 1) {
    throw new Error('a line is shown twice');
  }
  await page.getByText(/^begin/).nth(1).waitFor();
  await page.getByText('Following', { exact: true }).waitFor();
  await step('restarted');
  await page.getByText('unheard words').waitFor();
  await page.getByText(/started again \(restart 2\)/).waitFor();

  await page.getByLabel('Previous run').check();
  await page.getByText('The log of the previous run.').waitFor();
  await page.getByText('die again').waitFor();
  if (!page.url().includes('previous=true')) {
    throw new Error(`the URL is ${page.url()}`);
  }
  await page.getByLabel('Follow').check();
  await page.getByText('Following', { exact: true }).waitFor();
  await step('deleted');
  await page.getByText('The pod was deleted.').waitFor();
});
