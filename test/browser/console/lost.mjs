// Loses the connection to the gateway.
import { run } from './page.mjs';

await run(async ({ page, context, step, checkAccessibility }) => {
  await page.goto(`${process.env.VIA}/console/clusters`);
  await page.getByText('all ready, live').waitFor();
  const events = await context.newPage();
  await events.goto(`${process.env.VIA}/console/objects/member1/core/v1/namespaces/-/default?tab=events`);
  await events.getByText('No events.').waitFor();

  await step('live');
  await events.getByText('The events cannot be listed').waitFor();
  await page.getByRole('alert').getByText('The connection to the gateway is lost.').waitFor();
  await page.getByRole('rowheader', { name: 'member1' }).waitFor();
  await checkAccessibility(page);

  await step('lost');
  await page.getByText('The connection to the gateway is lost.').waitFor({ state: 'detached' });
  await page.getByText('all ready, live').waitFor();
  await events.getByText('The events cannot be listed').waitFor({ state: 'detached' });
  await events.getByText('This page does not follow changes now.').waitFor({ state: 'detached' });
});
