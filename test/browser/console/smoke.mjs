// Opens the console, and uses its keys and its colours. Prints the compressed bytes that the first view needs.
import { run } from './page.mjs';

await run(async ({ page, gateway, open, checkAccessibility }) => {
  await open('/console/');
  await page.getByRole('heading', { name: 'Clusters', level: 1 }).waitFor();
  await page.getByRole('rowheader', { name: 'member1' }).waitFor();
  const bytes = await page.evaluate(() => performance.getEntries()
    .filter((e) => e.entryType === 'navigation' ||
      (e.entryType === 'resource' && new URL(e.name).pathname.startsWith('/console/')))
    .reduce((total, e) => total + e.encodedBodySize, 0));
  console.log(`bytes ${bytes}`);

  const key = (keys) => keys.split(' ').reduce((done, k) => done.then(() => page.keyboard.press(k)), Promise.resolve());
  const expectURL = (path) => page.waitForURL((url) => url.href === gateway + path);
  await key('g f');
  await expectURL('/console/fleet');
  await key('g g');
  await expectURL('/console/gateway');
  await key('g c');
  await expectURL('/console/clusters');
  await page.getByRole('rowheader', { name: 'member1' }).waitFor(); // the URL changes before the view
  await key('/');
  await page.keyboard.type('member2');
  await expectURL('/console/clusters?q=member2');
  await page.getByRole('rowheader', { name: 'member1' }).waitFor({ state: 'detached' });
  await page.keyboard.press('Tab');
  await key('?');
  const help = page.getByRole('dialog', { name: 'Keyboard' });
  await help.getByText('Search the clusters').waitFor();
  await checkAccessibility(page);
  await page.keyboard.press('Escape');
  await help.waitFor({ state: 'detached' });

  await page.getByRole('button', { name: 'Show as kubectl' }).click();
  await page.getByRole('button', { name: 'Copy' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  if (copied !== 'kubectl --context clusterpass get clusters --watch') {
    throw new Error('the command was not copied');
  }

  const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await colour();
  await page.getByRole('button', { name: 'Colours: system' }).click();
  await page.getByRole('button', { name: 'Colours: light' }).click();
  await page.getByRole('button', { name: 'Colours: dark' }).waitFor();
  if (await colour() === light) {
    throw new Error('the dark colours are the light ones');
  }
  await page.reload();
  await page.getByRole('button', { name: 'Colours: dark' }).click();

  await open('/console/no/such/view');
  await page.getByText('The console has no such page.').waitFor();
});
