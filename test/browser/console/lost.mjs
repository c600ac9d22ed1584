// Loses the connection to the gateway.
import { run } from './page.mjs';

await run(async ({ page, step, checkAccessibility }) => {
  await page.goto(`${process.env.VIA}/console/clusters`);
  await page.getByText('all ready, live').waitFor();

  await step('live');
  await page.getByRole('alert').getByText('The connection to the gateway is lost.').waitFor();
  await page.getByRole('rowheader', { name: 'member1' }).waitFor();
  await checkAccessibility(page);

  await step('lost');
  await page.getByText('The connection to the gateway is lost.').waitFor({ state: 'detached' });
  await page.getByText('all ready, live').waitFor();
});
