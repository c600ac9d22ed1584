// Shows the private cluster branch, whose agents the test starts.
import { run } from './page.mjs';

await run(async ({ page, open, step, checkAccessibility }) => {
  await open('/console/clusters?q=branch');
  const row = page.locator('tr[data-cluster=branch]');
  await row.getByText('0 agents', { exact: true }).waitFor();
  await row.getByText('Check that the agents of the cluster run').waitFor();
  await step('none');
  await row.getByText('2 agents', { exact: true }).waitFor();
  await row.getByText('● ready').waitFor();
  await checkAccessibility(page);
  await row.getByRole('link', { name: 'branch', exact: true }).click();
  await page.getByText('through 2 agents in the cluster', { exact: true }).waitFor();
});
