import { readFileSync } from 'node:fs';
import { run, showCommand } from './page.mjs';

const { CAST, BROKEN, SIZES, ID, POD } = process.env;

await run(async ({ page, open, checkAccessibility, screenshot }) => {
  await open('/console/recording?speed=4&pause=0.5');
  const requests = [];
  const file = page.locator('input[type=file]');
  await file.setInputFiles(BROKEN);
  await page.getByText(/the file is no recording in asciicast v2/).waitFor();
  page.on('request', (request) => requests.push(`${request.method()} ${request.url()}`));
  await file.setInputFiles(CAST);
  const fact = (name) =>
    page.locator('dt', { hasText: new RegExp(`^${name}$`) }).locator('xpath=following-sibling::dd[1]');
  await fact('Recording').filter({ hasText: ID }).waitFor();
  await fact('Pod').filter({ hasText: POD }).waitFor();
  await fact('Command').filter({ hasText: '<img src=x onerror="hostile()">' }).waitFor();
  await page.locator('.ap-player').waitFor();
  await page.keyboard.press('p');
  await page.getByText('The end of the recording.').waitFor();
  const shown = (await page.locator('.ap-term-text .ap-line').allTextContents()).join('\n');
  if (!shown.includes('recorded <img src=x onerror="hostile()">')) {
    throw new Error(`the player shows ${shown}`);
  }
  if (await page.locator('main img').count() > 0) {
    throw new Error('a recording became HTML');
  }
  const command = await showCommand(page);
  if (command !== `clusterpass recording play --speed 4 --max-pause 0.5s -- ${ID}`) {
    throw new Error(`command: ${command}`);
  }
  if (requests.some((r) => !r.startsWith('GET ') && !r.includes('blob:'))) {
    throw new Error(`the file leaves the browser: ${requests.join('\n')}`);
  }
  await checkAccessibility(page);
  await screenshot(page, 'recording');

  // Sizes that no terminal has do not stop the player.
  await open('/console/recording?speed=4');
  await file.setInputFiles(SIZES);
  await fact('Size').filter({ hasText: '1000 × 24' }).waitFor();
  await page.locator('.ap-player').waitFor();
  await page.keyboard.press('p');
  await page.getByText('The end of the recording.').waitFor();
  const lines = await page.locator('.ap-term-text .ap-line').allTextContents();
  if (lines.length !== 24 || lines[0].trimEnd() !== 'first last') {
    throw new Error(`after sizes that no terminal has, the player shows ${lines.length} lines: ${lines[0]}`);
  }

  // A dropped file plays, too.
  await open('/console/recording');
  const data = await page.evaluateHandle((text) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], 'dropped.cast'));
    return transfer;
  }, readFileSync(CAST, 'utf8'));
  await page.locator('.recording-open').dispatchEvent('drop', { dataTransfer: data });
  await page.getByRole('heading', { name: 'dropped.cast' }).waitFor();
});
