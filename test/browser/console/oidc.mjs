// Signs in at an OpenID Connect issuer, without a certificate.
import { run } from './page.mjs';

const issuer = process.env.ISSUER;

await run(async ({ page, gateway, open }) => {
  for (let load = 0; load < 2; load++) {
    await open('/console/clusters?q=member2');
    await page.getByRole('button', { name: `Sign in at ${issuer}` }).click();
    await page.locator('.user').getByText('page', { exact: true }).waitFor();
    if (page.url() !== `${gateway}/console/clusters?q=member2`) {
      throw new Error(`the sign-in ends at ${page.url()}`);
    }
    // The user may call member1, and not list clusters: the view explains it.
    await page.getByRole('alert').getByText('Forbidden').waitFor();
    const stored = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie]));
    if (/eyJ|verifier|clusterpass-sign-in/.test(stored)) {
      throw new Error(`the page stores ${stored}`);
    }
  }
  // The answer of the issuer works once, and only for the page that asked for it.
  await open('/console/?code=stolen&state=stolen');
  await page.getByRole('button', { name: `Sign in at ${issuer}` }).waitFor();
}, { certificate: false });
