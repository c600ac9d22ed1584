// Bundles the console into ../dist: index.html, licenses.txt, and assets/ with a hash of the content in each name.
// Assets are compressed, because the gateway serves them compressed.
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import * as esbuild from 'esbuild';

const root = dirname(fileURLToPath(import.meta.url));
const dist = join(root, '..', 'dist');
const base = '/console/';

const options = {
  absWorkingDir: root,
  entryPoints: [{ in: 'src/main.tsx', out: 'main' }],
  outdir: join(dist, 'assets'),
  publicPath: `${base}assets`,
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  assetNames: '[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  loader: { '.svg': 'file' },
  minify: true,
  legalComments: 'none',
  metafile: true,
  write: false,
};

// outputs returns the entry of the page, its style sheets, and the chunks that it imports before it runs.
function entryOf(metafile) {
  const nameOf = (path) => path.slice(path.lastIndexOf('/') + 1);
  const [path, entry] = Object.entries(metafile.outputs).find(([, output]) => output.entryPoint === 'src/main.tsx');
  const chunks = new Set();
  const visit = (output) => {
    for (const { path: imported, kind } of output.imports) {
      if (kind === 'import-statement' && !chunks.has(imported)) {
        chunks.add(imported);
        visit(metafile.outputs[imported]);
      }
    }
  };
  visit(entry);
  return { script: nameOf(path), style: nameOf(entry.cssBundle), chunks: [...chunks].map(nameOf) };
}

// page returns index.html. The gateway replaces NONCE in each response.
function page({ script, style, chunks }, files) {
  const integrity = (name) => `integrity="sha384-${createHash('sha384').update(files.get(name)).digest('base64')}"`;
  const preloads = chunks.map((name) =>
    `<link rel="modulepreload" nonce="NONCE" href="${base}assets/${name}" ${integrity(name)}>\n`);
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Clusterpass</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${base}assets/${style}" ${integrity(style)}>
${preloads.join('')}<script type="module" nonce="NONCE" src="${base}assets/${script}" ${integrity(script)}></script>
</head>
<body>
<noscript>The console needs JavaScript.</noscript>
<div id="app"></div>
</body>
</html>
`;
}

// prebuilt names the packages that a package has in its own bundle.
const prebuilt = { 'asciinema-player': ['solid-js'] };

const permitted = ['Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', 'MIT'];

// licenses returns the licenses of all packages in the bundle, with their texts.
async function licenses(metafile) {
  const names = new Set(Object.keys(metafile.inputs).flatMap((path) =>
    [...path.matchAll(/node_modules\/((?:@[^/]+\/)?[^/]+)/g)].slice(-1).map(([, name]) => name)));
  for (const name of [...names]) {
    prebuilt[name]?.forEach((other) => names.add(other));
  }
  const texts = [...names].sort().map(async (name) => {
    const folder = join(root, 'node_modules', name);
    const { version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    const file = (await readdir(folder)).find((f) => /^licen[cs]e/i.test(f));
    if (!permitted.includes(license) || !file) {
      throw new Error(`${name} has the license ${license} and the file ${file}; want one of ${permitted.join(', ')}`);
    }
    return `${name} ${version}, ${license}\n\n${await readFile(join(folder, file), 'utf8')}`;
  });
  return (await Promise.all(texts)).join(`\n${'-'.repeat(80)}\n\n`);
}

async function clear() {
  await mkdir(dist, { recursive: true });
  for (const name of await readdir(dist)) {
    if (name !== 'README') {
      await rm(join(dist, name), { recursive: true });
    }
  }
  await mkdir(join(dist, 'assets'));
}

async function write(result) {
  if (result.errors.length > 0) {
    return;
  }
  await clear();
  const files = new Map(result.outputFiles.map(({ path, contents }) => [basename(path), contents]));
  for (const [name, contents] of files) {
    await writeFile(join(dist, 'assets', `${name}.gz`), gzipSync(contents, { level: 9 }));
  }
  await writeFile(join(dist, 'licenses.txt'), await licenses(result.metafile));
  await writeFile(join(dist, 'index.html'), page(entryOf(result.metafile), files));
}

if (process.argv.includes('--watch')) {
  const plugin = { name: 'write', setup: (build) => build.onEnd(write) };
  const context = await esbuild.context({ ...options, plugins: [plugin], logLevel: 'info' });
  await context.watch();
} else {
  await write(await esbuild.build({ ...options, logLevel: 'warning' }));
}
