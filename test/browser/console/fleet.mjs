// Shows the ConfigMaps of NAMESPACE in the table of the fleet while the test changes them.
import { expect, rowOf, run, showCommand } from './objects.mjs';

const namespace = process.env.NAMESPACE;

await run(async ({ page, open, step, checkAccessibility }) => {
  await open(`/console/fleet/core/v1/configmaps?namespace=${namespace}&labelSelector=app`);
  await rowOf(page, 'settings', 'member1').waitFor();
  await rowOf(page, 'settings', 'member2').waitFor();
  await page.getByText('Live', { exact: true }).waitFor();
  expect(await rowOf(page, 'settings', 'member2').getByRole('gridcell').nth(2).textContent(), '1', 'the column Data');
  await page.evaluate(() => {
    globalThis.isSamePage = true;
  });

  await step('live');
  await rowOf(page, 'settings', 'member2').filter({ hasText: '7' }).waitFor();
  await rowOf(page, 'added', 'member1').waitFor();
  await rowOf(page, 'settings', 'member1').waitFor({ state: 'detached' });

  await page.getByRole('button', { name: 'Data' }).click();
  await page.getByRole('button', { name: 'Data' }).click();
  await page.getByRole('columnheader', { name: 'Data' }).and(page.locator('[aria-sort=descending]')).waitFor();
  await page.waitForFunction(() =>
    document.querySelector('.virtual-body [role=row]')?.textContent?.startsWith('settings'));
  expect(new URL(page.url()).searchParams.get('sort'), '-Data', 'the order in the URL');

  await page.keyboard.press('/');
  await page.keyboard.type('member1 add');
  await rowOf(page, 'settings', 'member2').waitFor({ state: 'detached' });
  await rowOf(page, 'added', 'member1').waitFor();
  await page.waitForFunction(() => new URL(location.href).searchParams.get('q') === 'member1 add');
  await step(await showCommand(page));

  await page.reload(); // the URL has the whole state
  await rowOf(page, 'added', 'member1').waitFor();
  expect(await page.getByRole('row').count(), 2, 'rows after a reload, with the head');
  expect(await page.evaluate(() => globalThis.isSamePage), undefined, 'the page before the reload');

  await page.getByRole('searchbox', { name: 'Text' }).fill('');
  await rowOf(page, 'settings', 'member2').waitFor();
  await checkAccessibility(page);

  await page.getByRole('textbox', { name: 'Clusters' }).fill('member2');
  await page.keyboard.press('Enter');
  await rowOf(page, 'added', 'member1').waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'settings' }).waitFor();
  await step(await showCommand(page));
  await page.getByRole('link', { name: 'settings' }).click();
  await page.getByRole('heading', { name: 'ConfigMap settings' }).waitFor();

  await open('/console/fleet');
  await page.getByRole('searchbox', { name: 'Search kinds' }).fill('cm');
  await page.getByRole('link', { name: 'ConfigMap', exact: true }).waitFor();
  await checkAccessibility(page);
});
