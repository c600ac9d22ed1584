// Shows the ConfigMaps of NAMESPACE until the token of the issuer ends, and signs in at the issuer again.
import { expect, run } from './objects.mjs';

const { ISSUER: issuer, NAMESPACE: namespace } = process.env;

await run(async ({ page, gateway, open, step, checkAccessibility }) => {
  const path = `/console/fleet/core/v1/configmaps?cluster=member1&namespace=${namespace}&labelSelector=app&sort=-Name`;
  await open(path);
  await page.getByRole('button', { name: `Sign in at ${issuer}` }).click();
  await page.getByRole('link', { name: 'before', exact: true }).waitFor();
  const dialog = page.getByRole('dialog', { name: 'Sign in again' });
  await dialog.waitFor();
  expect(await page.locator('.virtual-body').getByText('before', { exact: true }).count(), 1, 'rows below the dialog');
  await page.getByText('Not connected', { exact: true }).waitFor();
  await checkAccessibility(page);
  await page.keyboard.press('g');
  await page.keyboard.press('c');
  expect(page.url(), gateway + path, 'the URL after keys of the view below the dialog');
  await step('ended');
  await page.evaluate(() => {
    globalThis.isFirstPage = true;
  });
  await dialog.getByRole('button', { name: `Sign in at ${issuer}` }).click();
  await page.waitForFunction(() => !globalThis.isFirstPage);
  await page.locator('.user').getByText('page', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'before', exact: true }).waitFor();
  await page.getByText('Live', { exact: true }).waitFor();
  expect(page.url(), gateway + path, 'the URL after the sign-in');
}, { certificate: false });
