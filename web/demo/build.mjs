// Assembles the demo, a static folder: the server's chat page (server/page), the files of this folder, the package and the tiny model. Nothing of the
// page is copied by hand, so both pages stay the same.
//
// usage: node web/demo/build.mjs [--package FOLDER] [--tiny FOLDER] [--out FOLDER]
//   defaults: web/pkg, web/pkg-tiny, web/demo/dist
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { parseArgs } from 'node:util';

const here = import.meta.dirname;
const page = join(here, '../../server/page');
const { values } = parseArgs({ options: { package: { type: 'string' }, tiny: { type: 'string' }, out: { type: 'string' } } });
const pkg = values.package ?? join(here, '../pkg');
const tiny = values.tiny ?? join(here, '../pkg-tiny');
const out = values.out ?? join(here, 'dist');

/** Files of the page that only a server or a developer needs. */
const OF_SERVERS = new Set(['index.html', 'package.json', 'server.js', 'http.js', 'sse.js']);

/**
 * The content security policy: scripts of this page only, WebAssembly, and the package's worker, which is a blob. Weights may come from any address.
 */
const POLICY = [
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; style-src 'self'; font-src 'self'; img-src 'self' data:",
  "connect-src * blob:; base-uri 'none'; form-action 'none'",
].join('; ');

for (const [name, folder] of [['package', pkg], ['tiny', tiny]]) {
  if (existsSync(join(folder, 'index.js'))) continue;
  console.error(`build: no index.js in ${folder}; run \`tools/web.sh\`, or name the folder with --${name}`);
  process.exit(1);
}

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, 'demo'), { recursive: true });
cpSync(page, join(out, 'page'), { recursive: true, filter: (path) => !OF_SERVERS.has(relative(page, path)) });
cpSync(pkg, join(out, 'wingbeat'), { recursive: true, filter: (path) => !/\.(d\.ts|md)$|package\.json$/.test(path) });
cpSync(tiny, join(out, 'models/tiny'), { recursive: true, filter: (path) => !/\.(js|d\.ts|md)$|package\.json$/.test(path) });
const own = readdirSync(here).filter((name) => /\.(js|css)$/.test(name) && name !== 'sw.js');
for (const name of own) cpSync(join(here, name), join(out, 'demo', name));
cpSync(join(here, 'models.json'), join(out, 'models.json'));

/** Replaces a text of the page's HTML. Throws unless the text occurs exactly once. */
const replaced = (html, from, to) => {
  if (html.split(from).length !== 2) throw new Error(`build: expected ${from} once in server/page/index.html`);
  return html.replace(from, () => to);
};
let html = readFileSync(join(page, 'index.html'), 'utf8');
const about = '<meta name="description" content="A language model that runs in this browser, on WebGPU.">';
const styles = '<link rel="stylesheet" href="page/markdown.css">';
html = replaced(html, '<meta name="referrer"', `<meta http-equiv="Content-Security-Policy" content="${POLICY}">\n${about}\n<meta name="referrer"`);
html = replaced(html, styles, `${styles}\n<link rel="stylesheet" href="demo/start.css">`);
html = replaced(html, 'src="page/server.js"', 'src="demo/start.js"');
html = replaced(html, '<body>', '<body data-view="start">');
html = replaced(html, '<div id="app">', `${readFileSync(join(here, 'start.html'), 'utf8')}<div id="app">`);
writeFileSync(join(out, 'index.html'), html);

// the service worker keeps exactly these files, so the page works offline without weights of models
const files = readdirSync(out, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => relative(out, join(entry.parentPath, entry.name)).split(sep).join('/'))
  .filter((path) => !path.startsWith('models/') && /\.(html|js|css|json|wasm|vocab|woff2)$/.test(path))
  .sort();
const hash = (path) => createHash('sha256').update(readFileSync(join(out, path))).digest('base64');
const version = createHash('sha256');
for (const path of files) version.update(`${path} ${hash(path)}\n`);
const kept = Object.fromEntries(files.map((path) => [path, path === 'index.html' ? null : `sha256-${hash(path)}`]));
const worker = readFileSync(join(here, 'sw.js'), 'utf8')
  .replace('__VERSION__', () => version.digest('hex').slice(0, 16))
  .replace('__FILES__', () => JSON.stringify(kept, null, 1));
writeFileSync(join(out, 'sw.js'), worker);
console.log(`${relative(process.cwd(), out) || out}: ${files.length} files that work offline`);
