// Opens the console in Chromium for the scripts of this folder. A script is:
//
//   import { run } from './page.mjs';
//   await run(async ({ page, open, step, checkAccessibility, screenshot }) => { … });
//
// GATEWAY is the origin of the gateway. VIA is another origin at which it is reachable, instead. It gets the client
// certificate in the PEM files CERTIFICATE and KEY.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { launch } from '../chromium.mjs';

const { GATEWAY: gateway, VIA, CERTIFICATE, KEY, SCREENSHOTS } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const patience = 120_000; // for a busy machine
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// step prints the name of a step, and returns the line with which the test answers.
async function step(name) {
  console.log(`step ${name}`);
  const { value, done } = await answers.next();
  if (done) {
    throw new Error(`the test ended at step ${name}`);
  }
  return value;
}

// checkAccessibility fails if axe-core finds a violation in the page, in its light or in its dark colours.
async function checkAccessibility(page) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    // An evaluation is no script of the page, so its policy does not apply.
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
    if (violations.length > 0) {
      throw new Error(`${page.url()} in ${colorScheme} colours: ` + violations.map((v) =>
        `${v.id}: ${v.help}\n${v.nodes.map((n) => `  ${n.html}\n  ${n.failureSummary}`).join('\n')}`).join('\n'));
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

// screenshot writes console-NAME.png into the folder SCREENSHOTS, if that is set. Plots of the page have some values.
async function screenshot(page, name) {
  if (SCREENSHOTS) {
    await page.waitForFunction(() => [...document.querySelectorAll('.plot')].every((plot) => {
      const points = plot.querySelector('.line').getAttribute('d').match(/[ML]/g) ?? [];
      return points.length + plot.querySelectorAll('.gap').length > 9;
    }));
    await page.screenshot({ path: join(SCREENSHOTS, `console-${name}.png`), animations: 'disabled' });
  }
}

// expect throws an error unless two values are the same.
export function expect(got, want, what) {
  if (got !== want) {
    throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

// showCommand opens "Show as kubectl" and returns the command.
export async function showCommand(page) {
  const button = page.getByRole('button', { name: 'Show as kubectl' }).first();
  if (await button.getAttribute('aria-expanded') === 'false') {
    await button.click();
  }
  return page.locator('.as-kubectl code').first().textContent();
}

// run opens a page and calls main. Without the option certificate, the browser has no client certificate. It fails if
// the page throws an error, violates its policy, or runs globalThis.hostile(), which hostile texts call.
export async function run(main, { certificate = true } = {}) {
  const browser = await launch();
  const errors = [];
  try {
    const context = await browser.newContext({
      ignoreHTTPSErrors: true,
      viewport: { width: 1200, height: 750 },
      colorScheme: 'light',
      locale: 'en-GB',
      timezoneId: 'UTC',
      permissions: ['clipboard-read', 'clipboard-write'],
      acceptDownloads: true,
      ...(certificate && CERTIFICATE && {
        clientCertificates: [{ origin: VIA ?? gateway, cert: readFileSync(CERTIFICATE), key: readFileSync(KEY) }],
      }),
    });
    context.setDefaultTimeout(patience);
    await context.exposeFunction('hostile', () => errors.push('a hostile text ran as a script'));
    await context.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        const { violatedDirective, blockedURI, sourceFile, lineNumber } = event;
        globalThis.reportViolation(`${violatedDirective}: ${blockedURI} at ${sourceFile}:${lineNumber}`);
      });
    });
    await context.exposeFunction('reportViolation', (text) => errors.push(`the policy was violated: ${text}`));
    const page = await context.newPage();
    context.on('weberror', (error) => errors.push(`the page threw ${error.error().stack ?? error.error()}`));
    const open = (path) => page.goto(`${gateway}${path}`);
    await main({ browser, context, page, gateway, open, step, checkAccessibility, screenshot, errors });
    if (errors.length > 0) {
      throw new Error(errors.join('\n'));
    }
  } catch (error) {
    console.error(error, errors.join('\n'));
    process.exitCode = 1;
  } finally {
    await browser.close();
    process.stdin.destroy();
  }
}
