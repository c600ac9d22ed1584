// Shows objects and downloads a log whose member sends bodies that do not end.
import { run } from './page.mjs';

await run(async ({ page, open }) => {
  await open('/console/objects/endless/core/v1/configmaps/default/body');
  await page.getByRole('alert').getByText('the response has more than 134217728 bytes; use kubectl').waitFor();
  await open('/console/objects/endless/core/v1/configmaps/default/error');
  const notice = page.getByRole('alert');
  await notice.getByText('endless endless').waitFor();
  const { length } = await notice.textContent();
  if (length > 2_000) {
    throw new Error(`the notice has ${length} characters`);
  }
  await open('/console/logs?pod=endless/default/web/main&follow=false');
  await page.getByRole('button', { name: 'Download' }).click();
  await notice.getByText('the response has more than 269484032 bytes; use kubectl').waitFor();
});
