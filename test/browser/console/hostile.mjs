// Shows the Role NAME of NAMESPACE in member1, whose name, annotations and labels would run a script as HTML.
import { expect, run, showCommand } from './objects.mjs';

const { NAMESPACE: namespace, NAME: name, MARKUP: markup } = process.env;

await run(async ({ page, open, step, checkAccessibility }) => {
  await open(`/console/fleet/rbac.authorization.k8s.io/v1/roles?namespace=${namespace}`);
  await page.getByRole('link', { name, exact: true }).waitFor();
  await step(await showCommand(page));
  await page.getByRole('link', { name, exact: true }).click();
  await page.getByRole('heading', { name: `Role ${name}`, exact: true }).waitFor();
  await page.getByText(`hostile=${markup}`).waitFor();
  await step(await showCommand(page));

  await page.getByRole('link', { name: 'YAML' }).click();
  const shown = page.locator('pre.yaml').first();
  await shown.waitFor();
  for (const text of [name, markup]) {
    expect((await shown.textContent()).includes(text), true, `the YAML has ${text}`);
  }
  expect((await shown.textContent()).includes('\u202e'), false, 'the YAML reverses text');
  await page.locator('details.managed summary').click();
  await checkAccessibility(page);
  await step(await showCommand(page));

  await page.getByRole('link', { name: 'Events' }).click();
  await page.getByRole('cell', { name: markup }).first().waitFor();
  await step(await showCommand(page));
  await page.getByRole('link', { name: 'Owners and children' }).click();
  await page.getByText(`Hostile ${markup}`).waitFor(); // an owner that does not exist
  await page.getByText('kinds were searched').waitFor();
  await checkAccessibility(page);

  await page.getByRole('link', { name: 'YAML' }).click();
  await page.getByRole('button', { name: 'Edit' }).click();
  const editor = page.getByRole('textbox', { name: 'YAML of the object' });
  await editor.fill((await editor.inputValue()).replace('hostile:', 'other: <svg onload=hostile()>\n    hostile:'));
  await page.getByRole('button', { name: 'Check on the server' }).click();
  await page.getByRole('heading', { name: 'The server accepts this change' }).waitFor();
  await page.locator('.diff .added').filter({ hasText: '<svg onload=hostile()>' }).waitFor();
  expect(await page.locator('main :is(img, svg, script, iframe)').count(), 0, 'elements that hostile texts made');
});
