// Shows the metrics of the gateway.
import { run } from './page.mjs';

await run(async ({ page, open, checkAccessibility, screenshot }) => {
  await open('/console/gateway');
  const tile = (name) => page.getByRole('region', { name }).locator('strong');
  await tile('Calls per second').getByText(/^[0-9.]+$/).waitFor();
  await tile('Streams now').getByText(/^[0-9]+$/).waitFor();
  const latency = page.getByRole('row', { name: /^gateway / });
  await latency.getByText(/^[0-9.]+ m?s$/).first().waitFor();
  await page.getByRole('heading', { name: 'Errors by reason, since the start' }).waitFor();
  await page.getByRole('button', { name: 'Show as kubectl' }).click();
  await page.getByText('kubectl --context clusterpass get --raw /bridge/metrics').waitFor();
  await checkAccessibility(page);
  await page.getByRole('button', { name: 'Show as kubectl' }).click();
  await screenshot(page, 'gateway');
});
