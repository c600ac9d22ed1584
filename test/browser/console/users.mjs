// Signs in by the passes FIRST and SECOND of ann and then by OTHER of bob, in one page.
import { expect, run } from './page.mjs';

const { NAMESPACE: namespace } = process.env;
const passes = ['FIRST', 'SECOND', 'OTHER'].map((name) => JSON.parse(process.env[name]));
const [first, second, other] = passes.map((pass) => /token: (\S+)/.exec(pass)[1]);

await run(async ({ page, open, step }) => {
  const sent = [];
  page.on('request', (request) => sent.push(request.allHeaders().then((headers) => headers.authorization)));
  const signIn = async (text) => {
    await page.getByLabel('Pass').fill(text);
    await page.getByRole('button', { name: 'Use the pass' }).click();
  };
  // expectTokens fails if a request since the last call had another token.
  const expectTokens = async (...tokens) => {
    const seen = new Set((await Promise.all(sent.splice(0))).filter((value) => value !== undefined));
    const others = [...seen].filter((value) => !tokens.some((token) => value === `Bearer ${token}`));
    expect(others.length, 0, 'requests with other tokens');
    expect(seen.has(`Bearer ${tokens.at(-1)}`), true, 'a request with the new token');
  };
  const user = (name) => page.locator('.user').getByText(name, { exact: true }).waitFor();
  const editor = page.getByRole('textbox', { name: 'YAML of the object' });
  const dialog = page.getByRole('dialog', { name: 'Sign in again' });

  await open(`/console/objects/member1/core/v1/configmaps/${namespace}/settings?tab=yaml&edit=1`);
  await signIn(passes.slice(0, 2).join('\n'));
  await page.getByText('the text has no token, or several').waitFor();
  await signIn(passes[0]);
  await user('ann');
  await editor.fill((await editor.inputValue()).replace('colour: red', 'colour: blue'));
  await expectTokens(first);

  await step(`revoke ${process.env.FIRST_NAME}`);
  await dialog.waitFor();
  await signIn(passes[1]);
  await dialog.waitFor({ state: 'detached' });
  sent.splice(0);
  expect((await editor.inputValue()).includes('colour: blue'), true, 'the text of ann is kept');
  await page.getByRole('button', { name: 'Check on the server' }).click();
  await page.getByRole('heading', { name: 'The server accepts this change' }).waitFor();
  await expectTokens(second);

  await step(`revoke ${process.env.SECOND_NAME}`);
  await dialog.waitFor();
  await signIn(passes[2]);
  await user('bob');
  sent.splice(0);
  await editor.waitFor();
  expect((await editor.inputValue()).includes('colour: red'), true, 'bob does not see the text of ann');
  await page.getByRole('link', { name: 'Clusters', exact: true }).click();
  await page.getByRole('rowheader', { name: 'member1' }).waitFor();
  await expectTokens(other);
}, { certificate: false });
