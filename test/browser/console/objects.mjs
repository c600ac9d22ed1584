// Helpers of the scripts that show tables and objects.
export { run } from './page.mjs';

// expect throws an error unless two values are the same.
export function expect(got, want, what) {
  if (got !== want) {
    throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

// rowOf returns the row of an object in the table of the fleet.
export function rowOf(page, name, cluster) {
  return page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) })
    .filter({ has: page.getByRole('link', { name: cluster, exact: true }) });
}

// showCommand opens "Show as kubectl" and returns the command.
export async function showCommand(page) {
  const button = page.getByRole('button', { name: 'Show as kubectl' }).first();
  if (await button.getAttribute('aria-expanded') === 'false') {
    await button.click();
  }
  return page.locator('.as-kubectl code').first().textContent();
}
