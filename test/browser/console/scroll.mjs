// Scrolls through the COUNT ConfigMaps of NAMESPACE. It prints times, the tasks of over 50 ms and the memory, and fails
// if the document grows with the table.
import { expect, run } from './objects.mjs';

const namespace = process.env.NAMESPACE;
const count = Number(process.env.COUNT);
const last = `entry-${String(count / 2 - 1).padStart(5, '0')}`; // of each of two clusters
const shownCount = count.toLocaleString('en');
const patience = 600_000; // milliseconds for 100,000 rows on a busy machine
const mostRows = 80; // of a window of 750 pixels

await run(async ({ page, context, open, screenshot }) => {
  const cdp = await context.newCDPSession(page);
  await cdp.send('Performance.enable');
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
  const reportMemory = async () => {
    await cdp.send('HeapProfiler.collectGarbage');
    const { metrics } = await cdp.send('Performance.getMetrics');
    const { value } = metrics.find((m) => m.name === 'JSHeapUsedSize');
    console.log(`measured memory: ${(value / 1e6).toFixed(1)} MB`);
  };
  const began = Date.now();
  const selector = 'fieldSelector=metadata.name!%3Dkube-root-ca.crt';
  await open(`/console/fleet/core/v1/configmaps?namespace=${namespace}&${selector}`);
  await page.locator('.virtual-body [role=row]').first().waitFor();
  console.log(`measured first rows: ${Date.now() - began} ms`);
  await page.getByText('Live', { exact: true }).waitFor({ timeout: patience });
  console.log(`measured all rows: ${Date.now() - began} ms`);
  const table = page.getByRole('grid');
  expect(await table.getAttribute('aria-rowcount'), String(count + 1), 'rows of the table');
  await report('loading');
  await reportMemory();
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
  const { frames, most } = scrolled;
  await report(`scrolling through ${shownCount} rows in ${frames} frames, with ${most} rows in the document`);
  if (most > mostRows) {
    throw new Error(`the document has ${most} rows, want at most ${mostRows}`);
  }
  await page.getByText(last, { exact: true }).waitFor();

  await page.getByRole('button', { name: 'Age' }).click();
  await page.locator('[aria-sort=ascending]').waitFor();
  await page.getByText('sorting').waitFor({ state: 'detached' });
  await report('sorting');
  await page.getByRole('searchbox', { name: 'Text' }).fill('entry-0123');
  await page.getByText(`20 of ${shownCount} objects`).waitFor();
  await report('filtering');
});
