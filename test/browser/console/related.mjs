// Shows the Deployment idle of NAMESPACE in member1, what belongs to it, and the Secret hidden.
import { expect, run, showCommand } from './objects.mjs';

const namespace = process.env.NAMESPACE;

await run(async ({ page, open, step, checkAccessibility, screenshot }) => {
  await open(`/console/objects/member1/apps/v1/deployments/${namespace}/idle`);
  await page.getByRole('cell', { name: 'Available', exact: true }).waitFor();
  await checkAccessibility(page);
  await screenshot(page, 'object');
  await step(await showCommand(page));

  await page.getByRole('link', { name: 'Events' }).click();
  await page.getByRole('cell', { name: 'ScalingReplicaSet' }).waitFor();
  await checkAccessibility(page);
  await step(await showCommand(page));

  await page.getByRole('link', { name: 'Owners and children' }).click();
  await page.getByRole('link', { name: /^ReplicaSet idle-/ }).waitFor();
  await page.getByRole('link', { name: 'Logs of 1 pod' }).waitFor();
  await checkAccessibility(page);
  await step(await showCommand(page));
  await page.getByRole('link', { name: /^Pod idle-/ }).click();
  await page.getByRole('heading', { name: /^Pod idle-/ }).waitFor();
  await page.getByRole('link', { name: 'Terminal' }).waitFor();
  await page.getByRole('link', { name: 'Owners and children' }).click();
  await page.getByRole('link', { name: 'Deployment idle' }).waitFor(); // the owner of the owner
  await page.getByRole('checkbox', { name: 'Search all kinds' }).check();
  await page.getByText('kinds were searched').waitFor();

  await open(`/console/objects/member1/core/v1/secrets/${namespace}/hidden?tab=yaml`);
  const shown = page.locator('pre.yaml').first();
  await shown.getByText('hidden, 16 characters').waitFor();
  expect((await page.locator('main').textContent()).includes('Y29uZmlkZW50aWFs'), false, 'the YAML shows a value');
  await page.getByRole('button', { name: 'Show the values' }).click();
  await shown.getByText('Y29uZmlkZW50aWFs').waitFor();
  await checkAccessibility(page);
});
