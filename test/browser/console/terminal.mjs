import { run, showCommand } from './page.mjs';

const { NAMESPACE: namespace } = process.env;

await run(async ({ page, open, step, checkAccessibility, screenshot }) => {
  await open(`/console/terminal/member1/${namespace}/shell`);
  const rows = page.locator('.xterm-rows');
  const shows = (text) => page.waitForFunction((wanted) => {
    const shown = [...document.querySelectorAll('.xterm-rows > div')];
    return shown.some((row) => row.textContent.trimEnd() === wanted);
  }, text);
  const type = async (text) => {
    await page.keyboard.type(text);
    await page.keyboard.press('Enter');
  };
  const start = page.getByRole('button', { name: 'Start', exact: true });

  // A link alone runs nothing.
  await page.getByText('No session.').waitFor();
  await start.click();
  const connected = page.getByText(/^Connected, \d+ × \d+\.$/);
  await connected.waitFor();
  await type('echo $((6*7))');
  await shows('42');

  const sizeOf = async () => /(\d+) × (\d+)/.exec(await connected.textContent()).slice(1).map(Number);
  const [columns, lines] = await sizeOf();
  await page.setViewportSize({ width: 1000, height: 700 });
  const before = `Connected, ${columns} × ${lines}.`;
  await page.waitForFunction((text) => !document.body.textContent.includes(text), before);
  const [newColumns, newLines] = await sizeOf();
  await type('stty size');
  await shows(`${newLines} ${newColumns}`);
  await page.setViewportSize({ width: 1200, height: 750 });

  // Colours need styles, which the policy of the page refuses as attributes.
  await type('printf "\\033[38;2;10;200;30mgreen\\033[0m\\n"');
  await shows('green');
  const green = rows.locator('span', { hasText: /^green$/ });
  const colour = await green.evaluate((span) => getComputedStyle(span).color);
  if (colour !== 'rgb(10, 200, 30)') {
    throw new Error(`the colour is ${colour}`);
  }
  await type(`printf '%s\\n' '<img src=x onerror="hostile()">'`);
  await shows('<img src=x onerror="hostile()">');
  await type(`printf '\\033]0;title\\007\\033]8;;https://evil.example.com\\007link\\033]8;;\\007\\n'`);
  await shows('link');
  if (await page.locator('.xterm img').count() > 0 || await page.title() === 'title') {
    throw new Error('output of a command changed the page');
  }

  await page.evaluate(() => navigator.clipboard.writeText('echo pas""ted'));
  await page.getByRole('button', { name: 'Paste' }).click();
  await rows.getByText('echo pas""ted').waitFor(); // then the terminal has the focus again
  await page.keyboard.press('Enter');
  await shows('pasted');
  const word = rows.locator('span', { hasText: /^pasted$/ }).or(rows.locator('div', { hasText: /^pasted\s*$/ })).last();
  const at = await word.boundingBox();
  await page.mouse.dblclick(at.x + 10, at.y + at.height / 2);
  await page.keyboard.press('Control+Shift+C');
  await page.waitForFunction(async () => await navigator.clipboard.readText() === 'pasted');
  await checkAccessibility(page);
  await screenshot(page, 'terminal');

  // Output that comes faster than the page shows it leaves a usable terminal.
  await type('yes | head -c 60000000; echo $((9*9))');
  await page.waitForFunction(() => [...document.querySelectorAll('.xterm-rows > div')].some(
    (row) => /^(81|── \d+ bytes are missing here.*)$/.test(row.textContent.trim())));
  await type('clear; echo $((11*11))');
  await shows('121');

  await type('exit 3');
  await page.getByText('The command ended with exit status 3.').waitFor();

  await start.click();
  await connected.waitFor();
  await type('echo $((7*7))');
  await shows('49');
  await type('sleep 1000');
  await step('typed');
  await page.getByText(/^The connection was lost at/).waitFor();
  await page.getByText('The session cannot continue.').waitFor();
  await page.getByRole('button', { name: 'Start a new session' }).click();
  await connected.waitFor();
  await type('echo $((8*8))');
  await shows('64');
  await shows('49'); // the output of the session before stays
  await page.keyboard.press('Control+F6');
  await page.keyboard.press('Enter');
  await page.getByText('No session.').waitFor();

  // A command without a terminal, from a URL.
  const words = 'command=sh&command=-c&command=echo+%24HOME%3B+exit+5';
  await open(`/console/terminal/member1/${namespace}/shell?${words}&tty=false`);
  const command = await showCommand(page);
  if (command !== `kubectl --context member1 exec -n ${namespace} shell -- sh -c 'echo $HOME; exit 5'`) {
    throw new Error(`kubectl: ${command}`);
  }
  await start.click();
  await page.getByText('The command ended with exit status 5.').waitFor();
  await page.getByRole('textbox', { name: 'Command' }).fill('no-such-program');
  await start.click();
  await page.getByText(/^The session ended: .*no-such-program|^The command ended with exit status 127\./).waitFor();

  await open(`/console/terminal/member1/${namespace}/absent`);
  await start.click();
  await page.getByText(/pods "absent" not found/).first().waitFor();
});
