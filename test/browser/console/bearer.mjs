// Opens a shell by a pass, without a certificate.
import { run } from './page.mjs';

const { NAMESPACE: namespace } = process.env;
const pass = JSON.parse(process.env.PASS);
const [, token] = /token: (\S+)/.exec(pass);

await run(async ({ page, open }) => {
  const urls = [];
  page.on('request', (request) => urls.push(request.url()));
  page.on('websocket', (socket) => urls.push(socket.url()));
  await open(`/console/terminal/member1/${namespace}/shell`);
  await page.getByLabel('Pass').fill(pass);
  await page.getByRole('button', { name: 'Use the pass' }).click();
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.getByText(/^Connected/).waitFor();
  await page.keyboard.type('echo $((6*7)); exit 6\n');
  await page.getByText('The command ended with exit status 6.').waitFor();
  if (!urls.some((url) => url.startsWith('wss:')) || urls.some((url) => url.includes(token.slice(0, 20)))) {
    throw new Error(`the token is in a URL, or no websocket was opened: ${urls.join('\n')}`);
  }
}, { certificate: false });
