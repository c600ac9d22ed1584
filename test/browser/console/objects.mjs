// Helpers of the scripts that show tables and objects.
export { expect, run, showCommand } from './page.mjs';

// rowOf returns the row of an object in the table of the fleet.
export function rowOf(page, name, cluster) {
  return page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) })
    .filter({ has: page.getByRole('link', { name: cluster, exact: true }) });
}
