// Plays the recording /session.cast of the page in the first argument in asciinema's player, and prints the text of its
// terminal at the end.
import { launch } from './chromium.mjs';

const browser = await launch();
try {
  const page = await browser.newPage();
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  await page.goto(process.argv[2], { timeout: 60_000 });
  await page.waitForFunction(() => globalThis.hasEnded, undefined, { timeout: 120_000 });
  console.log((await page.locator('.ap-term-text .ap-line').allTextContents()).join('\n'));
  if (errors.length > 0) {
    throw new Error(errors.join('\n'));
  }
} finally {
  await browser.close();
}
