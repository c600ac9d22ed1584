// Shows a cluster whose version is markup.
import { run } from './page.mjs';

const markup = process.env.MARKUP;

await run(async ({ page, open }) => {
  for (const path of ['/console/clusters', '/console/clusters/evil']) {
    await open(path);
    await page.getByText(markup, { exact: true }).waitFor();
    const made = await page.locator('main :is(img, script, iframe, svg:not(.plot))').count();
    if (made > 0) {
      throw new Error(`${path}: ${made} elements were made from a text of the member`);
    }
  }
});
