// Opens each of PATHS, a JSON list, and makes its command the name of a step.
import { run, showCommand } from './page.mjs';

await run(async ({ open, page, step }) => {
  for (const path of JSON.parse(process.env.PATHS)) {
    await open(path);
    await step(await showCommand(page));
  }
});
