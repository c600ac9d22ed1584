// Scrolls through the 10,000 ConfigMaps of NAMESPACE. It prints the tasks of over 50 ms, and fails if the document
// grows with the table.
import { expect, run } from './objects.mjs';

const namespace = process.env.NAMESPACE;
const count = 10_000;
const mostRows = 80; // of a window of 750 pixels

await run(async ({ page, open, screenshot }) => {
  await page.addInitScript(() => {
    globalThis.longTasks = [];
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
      globalThis.longTasks.push({ at: Math.round(entry.startTime), ms: Math.round(entry.duration) });
    })).observe({ type: 'longtask', buffered: true });
  });
  const takeTasks = () => page.evaluate(() => globalThis.longTasks.splice(0));
  const report = async (what) => {
    const tasks = await takeTasks();
    const longest = Math.max(0, ...tasks.map((t) => t.ms));
    console.log(`measured ${what}: ${tasks.length} tasks over 50 ms, the longest ${longest} ms`);
  };
  const began = Date.now();
  const selector = 'fieldSelector=metadata.name!%3Dkube-root-ca.crt';
  await open(`/console/fleet/core/v1/configmaps?namespace=${namespace}&${selector}`);
  await page.locator('.virtual-body [role=row]').first().waitFor();
  console.log(`measured first rows: ${Date.now() - began} ms`);
  await page.getByText('Live', { exact: true }).waitFor();
  console.log(`measured all rows: ${Date.now() - began} ms`);
  const table = page.getByRole('grid');
  expect(await table.getAttribute('aria-rowcount'), String(count + 1), 'rows of the table');
  await report('loading');
  await screenshot(page, 'fleet');
  await takeTasks();

  const scrolled = await page.evaluate(async (limit) => {
    const grid = document.querySelector('[role=grid]');
    const end = grid.scrollHeight - grid.clientHeight;
    let [most, frames] = [0, 0];
    for (let top = 0; top < end; top += 977) { // 32 rows and a part each frame
      grid.scrollTop = top;
      await new Promise((resolve) => requestAnimationFrame(resolve));
      most = Math.max(most, grid.querySelectorAll('[role=row]').length);
      frames++;
      if (most > limit) {
        break;
      }
    }
    grid.scrollTop = end;
    return { most, frames };
  }, mostRows);
  await report(`scrolling through ${count} rows in ${scrolled.frames} frames, with ${scrolled.most} rows in the document`);
  if (scrolled.most > mostRows) {
    throw new Error(`the document has ${scrolled.most} rows, want at most ${mostRows}`);
  }
  await page.getByText('entry-04999', { exact: true }).waitFor();

  await page.getByRole('button', { name: 'Age' }).click();
  await page.locator('[aria-sort=ascending]').waitFor();
  await page.getByText('sorting').waitFor({ state: 'detached' });
  await report('sorting');
  await page.getByRole('searchbox', { name: 'Text' }).fill('entry-0123');
  await page.getByText('20 of 10,000 objects').waitFor();
  await report('filtering');
});
