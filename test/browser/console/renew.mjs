// Follows the ConfigMaps of NAMESPACE while the token of the issuer is renewed.
import { expect, run } from './objects.mjs';

const { ISSUER: issuer, NAMESPACE: namespace } = process.env;

await run(async ({ page, open, step }) => {
  await open(`/console/fleet/core/v1/configmaps?cluster=member1&namespace=${namespace}&labelSelector=app`);
  await page.getByRole('button', { name: `Sign in at ${issuer}` }).click();
  await page.getByRole('link', { name: 'before', exact: true }).waitFor();
  await page.evaluate(() => {
    globalThis.isSamePage = true;
  });
  await step('live');
  await page.getByRole('link', { name: 'after', exact: true }).waitFor();
  await page.getByText('Live', { exact: true }).waitFor();
  expect(await page.evaluate(() => globalThis.isSamePage), true, 'the page is the one of the sign-in');
  expect(await page.getByRole('dialog').count(), 0, 'dialogs');
  const stored = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie]));
  expect(/eyJ|refresh-/.test(stored), false, 'the page stores a token');
}, { certificate: false });
