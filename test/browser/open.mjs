// Opens each URL of the arguments in Chromium, one after the other, and prints the status code of each.
// GATEWAY is the origin that gets the client certificate, with the PEM files CERTIFICATE and KEY. If TITLE is not empty,
// each page must get that title.
import { readFileSync } from 'node:fs';
import { launch } from './chromium.mjs';

const { GATEWAY: origin, CERTIFICATE, KEY, TITLE } = process.env;
const browser = await launch();
try {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true,
    clientCertificates: [{ origin, cert: readFileSync(CERTIFICATE), key: readFileSync(KEY) }],
  });
  const page = await context.newPage();
  for (const url of process.argv.slice(2)) {
    const response = await page.goto(url, { waitUntil: 'networkidle', timeout: 60_000 });
    if (TITLE) {
      await page.waitForFunction((title) => document.title === title, TITLE, { timeout: 60_000 });
    }
    console.log(response.status());
  }
} finally {
  await browser.close();
}
