// Signs in by a pass, without a certificate.
import { run } from './page.mjs';

const pass = JSON.parse(process.env.PASS);
const [, token] = /token: (\S+)/.exec(pass);

await run(async ({ page, open, step, checkAccessibility }) => {
  await open('/console/clusters?q=member2');
  await page.getByRole('heading', { name: 'Sign in to Clusterpass' }).waitFor();
  await checkAccessibility(page);

  await page.getByRole('button', { name: 'Use a certificate' }).click();
  await page.getByRole('alert').waitFor();

  const paste = async (text) => {
    await page.getByLabel('Pass').fill(text);
    await page.getByRole('button', { name: 'Use the pass' }).click();
  };
  await paste('not a pass');
  await page.getByText('the text has no token').waitFor();
  await paste(token.slice(0, -4) + 'AAAA');
  await page.getByRole('alert').getByText('Sign in again.').waitFor();
  await paste(pass);
  await page.getByRole('rowheader', { name: 'member2' }).waitFor();
  if (await page.getByRole('rowheader', { name: 'member1' }).count() > 0) {
    throw new Error('the view does not have the filter of its URL');
  }
  await page.locator('.user').getByText('ann', { exact: true }).waitFor();
  const stored = await page.evaluate(
    () => JSON.stringify([localStorage, sessionStorage, document.cookie, history.state]));
  if (stored.includes(token.slice(0, 20)) || page.url().includes(token.slice(0, 20))) {
    throw new Error(`the page stores the token: ${stored}`);
  }

  await step('signed in');
  await page.getByRole('dialog', { name: 'Sign in again' }).waitFor();
  await page.getByText(/, not live$/).waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog', { name: 'Sign in again' }).waitFor();
  await checkAccessibility(page);

  await page.reload();
  await page.getByRole('heading', { name: 'Sign in to Clusterpass' }).waitFor();
}, { certificate: false });
