// Edits the ConfigMap settings of NAMESPACE in member1 while the test changes it.
import { expect, run } from './objects.mjs';

const namespace = process.env.NAMESPACE;

await run(async ({ page, open, step, checkAccessibility, screenshot }) => {
  await open(`/console/objects/member1/core/v1/configmaps/${namespace}/settings?tab=yaml&edit=1`);
  const editor = page.getByRole('textbox', { name: 'YAML of the object' });
  const replace = async (old, text) => editor.fill((await editor.inputValue()).replace(old, text));
  const check = () => page.getByRole('button', { name: 'Check on the server' }).click();
  const conflict = page.getByRole('heading', { name: 'Conflict' });
  await editor.waitFor();

  await replace('colour: red', 'colour: blue\n  [');
  await check();
  await page.getByText('the YAML cannot be read').waitFor();
  await replace('\n  [', '');
  await replace('kind: ConfigMap', 'kind: ConfigMap\nunknownField: 1');
  await check();
  await page.getByText('unknownField').last().waitFor(); // the server's strict validation
  await page.getByText('Nothing was written').waitFor();
  await replace('\nunknownField: 1', '');

  const uid = /\n  uid: \S+/.exec(await editor.inputValue())[0];
  const version = /\n  resourceVersion: "\d+"/.exec(await editor.inputValue())[0];
  for (const [line, changed, field] of [
    [uid, '', 'uid'], [uid, '\n  uid: c6f4bd7c-0f2e-4f0e-a0f0-5f6a4f2b5d11', 'uid'],
    [version, '', 'resourceVersion'], [version, version.replaceAll('"', ''), 'resourceVersion'],
  ]) {
    await replace(line, changed);
    await check();
    await page.getByText(`the edit is refused: metadata.${field} is missing or changed`).waitFor();
    await page.getByText(`write ${line.trim()} below metadata`).waitFor();
    await editor.fill((await editor.inputValue()).replace(changed, '').replace('\nmetadata:', `\nmetadata:${line}`));
  }

  await step('typed');
  await check();
  await conflict.waitFor();
  await page.getByText('Both changes can be kept').waitFor();
  await page.locator('.conflict .added').filter({ hasText: 'size: large' }).waitFor();
  expect((await editor.inputValue()).includes('colour: blue'), true, 'the text of the user is kept');
  await checkAccessibility(page);
  await page.getByRole('button', { name: 'Put my change on the newest version' }).click();
  for (const text of ['colour: blue', 'size: large']) {
    expect((await editor.inputValue()).includes(text), true, `the new text has ${text}`);
  }
  await check();
  await page.locator('.checked .added').filter({ hasText: 'colour: blue' }).waitFor();
  await checkAccessibility(page);
  await screenshot(page, 'edit');

  await step('checked');
  await page.getByRole('button', { name: 'Apply' }).click();
  await conflict.waitFor();
  await page.getByText('You and others changed the same fields').waitFor();
  await page.locator('.conflict code').filter({ hasText: 'data.colour' }).waitFor();
  await page.getByRole('button', { name: 'Close, and keep the text' }).click();
  await page.getByRole('button', { name: 'Continue to edit' }).click();
  expect((await editor.inputValue()).includes('colour: blue'), true, 'the draft is kept');

  await step('conflict'); // nothing is written so far
  await check();
  await conflict.waitFor();
  await page.getByRole('button', { name: 'Put my change on the newest version' }).click();
  await check();
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByRole('button', { name: 'Edit', exact: true }).waitFor();
  await page.locator('pre.yaml').filter({ hasText: 'colour: blue' }).waitFor();
  await step('applied');
});
