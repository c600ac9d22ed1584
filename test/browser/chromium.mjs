// Starts Chromium for the scripts of this folder. CHROMIUM is the path of the program.
import { chromium } from 'playwright-core';

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: process.getuid() === 0 ? ['--no-sandbox'] : [],
  });
}
