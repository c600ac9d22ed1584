// Opens each URL of TESTS, a JSON list of pairs, and expects its text. It fails if the page sends a request that is
// neither the sign-in nor discovery.
import { expect, run } from './page.mjs';

const expected = new Set(['/apis/authentication.k8s.io/v1/selfsubjectreviews', '/clusters/member1/api',
  '/clusters/member1/apis', '/fleet/api', '/fleet/apis']);

await run(async ({ page, open }) => {
  const unexpected = [];
  page.on('request', (request) => {
    const { pathname, protocol } = new URL(request.url());
    if (protocol === 'https:' && !pathname.startsWith('/console/') && !expected.has(pathname)) {
      unexpected.push(`${request.method()} ${pathname}`);
    }
  });
  for (const [url, text] of JSON.parse(process.env.TESTS)) {
    await open(url);
    await page.getByText(text).first().waitFor();
    expect(unexpected.join(', '), '', `requests of ${url}`);
  }
  page.removeAllListeners('request');

  await open('/console/fleet?cluster=..'); // the rest of the page works
  await page.getByRole('alert').waitFor();
  await page.getByRole('link', { name: 'Clusters', exact: true }).click();
  await page.getByRole('rowheader', { name: 'member1' }).waitFor();
  await page.goBack();
  await page.getByRole('alert').waitFor();
});
