// Follows the ConfigMaps of NAMESPACE. It prints the memory of the page whenever the test answers "measure". With the
// answer "end N", it waits until the table has N rows, and ends.
import { run } from './objects.mjs';

const namespace = process.env.NAMESPACE;

await run(async ({ page, context, open, step }) => {
  const cdp = await context.newCDPSession(page);
  await cdp.send('Performance.enable');
  await cdp.send('HeapProfiler.enable');
  const measure = async () => {
    await cdp.send('HeapProfiler.collectGarbage');
    const { metrics } = await cdp.send('Performance.getMetrics');
    const { JSHeapUsedSize, Nodes, JSEventListeners } = Object.fromEntries(metrics.map((m) => [m.name, m.value]));
    const shown = await page.locator('.count').textContent();
    console.log(`measured heap ${(JSHeapUsedSize / 1e6).toFixed(2)} MB, ${Nodes} nodes, ` +
      `${JSEventListeners} listeners, ${shown}`);
  };
  await open(`/console/fleet/core/v1/configmaps?namespace=${namespace}&labelSelector=app`);
  await page.getByText('Live', { exact: true }).waitFor();
  for (;;) {
    const [command, rows] = (await step('wait')).split(' ');
    if (command === 'end') {
      await page.getByText(`${Number(rows).toLocaleString('en')} objects`, { exact: true }).waitFor();
      return;
    }
    await page.getByText('Live', { exact: true }).waitFor();
    await measure();
  }
});
