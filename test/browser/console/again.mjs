// Follows the log of the pod scribe of NAMESPACE by the pass FIRST, and then by SECOND of the same user.
import { expect, run } from './page.mjs';

const { NAMESPACE: namespace } = process.env;
const [first, second] = ['FIRST', 'SECOND'].map((name) => JSON.parse(process.env[name]));

await run(async ({ page, open, step }) => {
  const signIn = async (pass) => {
    await page.getByLabel('Pass').fill(pass);
    await page.getByRole('button', { name: 'Use the pass' }).click();
  };
  await open(`/console/logs?pod=member1/${namespace}/scribe/main`);
  await signIn(first);
  await page.getByText('Following', { exact: true }).waitFor();
  await page.getByText(/^begin/).waitFor();

  await step('following');
  await page.getByRole('dialog', { name: 'Sign in again' }).waitFor();
  await page.getByText('Waiting for a new sign-in', { exact: true }).waitFor();
  await step('ended');
  await signIn(second);
  await page.getByText('Following', { exact: true }).waitFor();
  await page.getByText('number 9', { exact: true }).waitFor();
  const lines = await page.locator('.log-row:not(.log-note)').allTextContents();
  const want = Array.from({ length: 9 }, (_, i) => `number ${i + 1}`);
  expect(lines.slice(1).join(), want.join(), 'the lines after the first');
}, { certificate: false });
