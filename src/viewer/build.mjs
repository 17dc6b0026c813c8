// Builds what the exporter and the server embed, in dist/: the program (viewer.js.gz), the pages around it
// (page.html of exports, served.html) and a list of it all. Equal sources make equal bytes.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'fflate';
import { build, transform } from 'esbuild-wasm';

/** Packages whose code is in the program: two that are asked for, and one inside of Spark. */
const PACKAGES = ['@sparkjsdev/spark', 'three', 'fflate'];

const here = path => new URL(path, import.meta.url);
const read = path => readFileSync(here(path), 'utf8');
const hash = (text, form) => createHash('sha256').update(text).digest(form);

/** Fails unless LICENSES.txt, which is edited by hand, has the licence of each package at its version. */
function checkLicenses(lock) {
  const licenses = read('LICENSES.txt');
  for (const name of PACKAGES) {
    const { version } = lock.packages[`node_modules/${name}`];
    const part = `${name} ${version}\n\n${read(`node_modules/${name}/LICENSE`).trim()}\n`;
    if (!licenses.includes(part)) throw new Error(`LICENSES.txt lacks ${name} ${version}`);
  }
}

async function program() {
  const result = await build({
    entryPoints: [new URL('src/main.js', import.meta.url).pathname],
    bundle: true,
    minify: true,
    format: 'iife',
    target: 'es2022',
    charset: 'ascii',
    legalComments: 'none',
    loader: { '.txt': 'text' },
    write: false,
  });
  return result.outputFiles[0].text;
}

/**
 * A page with its style, its loader, its table of keys and a policy that lets nothing else run. `server` is
 * what it may ask beside what it holds.
 */
async function pageAround(bundle, { page, styles, moreKeys, server }) {
  const minified = async (text, loader) => (await transform(text, { loader, minify: true })).code.trim();
  const style = await minified(styles.map(read).join('\n'), 'css');
  const loader = await minified(read('src/loader.js'), 'js');
  const named = text => `'sha256-${hash(text, 'base64')}'`;
  const policy = [
    "default-src 'none'",
    `script-src ${named(loader)} ${named(bundle)} 'wasm-unsafe-eval'`,
    `style-src ${named(style)}`,
    'worker-src blob:',
    `connect-src ${server}data: blob:`,
    'img-src data: blob:',
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  const keys = read('src/keys.html').trim().replace('{{more}}', () => moreKeys);
  // By a function: a text may hold `$&`.
  const fill = (text, [name, filled]) => text.replace(`{{${name}}}`, () => filled);
  return Object.entries({ policy, style, loader, keys }).reduce(fill, read(page));
}

mkdirSync(here('dist'), { recursive: true });
const lock = JSON.parse(read('package-lock.json'));
checkLicenses(lock);
const bundle = await program();
// Packed in JavaScript: Node's zlib makes other bytes in other versions.
const packed = gzipSync(Buffer.from(bundle), { level: 9, mtime: 0 });
writeFileSync(here('dist/viewer.js.gz'), packed);
const pages = {
  'page.html': { page: 'src/page.html', styles: ['src/page.css'], moreKeys: '', server: '' },
  'served.html': {
    page: 'src/served.html',
    styles: ['src/page.css', 'src/served.css'],
    moreKeys: read('src/served_keys.html'),
    server: "'self' ",
  },
};
const made = await Promise.all(Object.entries(pages).map(async ([name, parts]) => [name, await pageAround(bundle, parts)]));
for (const [name, text] of made) writeFileSync(here(`dist/${name}`), text);
const packages = ['esbuild-wasm', ...PACKAGES].map(name => {
  const { version, integrity } = lock.packages[`node_modules/${name}`];
  return { name, version, integrity };
});
const sha256 = {
  'viewer.js': hash(bundle, 'hex'),
  'viewer.js.gz': hash(packed, 'hex'),
  ...Object.fromEntries(made.map(([name, text]) => [name, hash(text, 'hex')])),
};
writeFileSync(here('dist/manifest.json'), `${JSON.stringify({ packages, sha256 }, null, 2)}\n`);
console.log(`viewer.js ${bundle.length} bytes, packed ${packed.length}`);
