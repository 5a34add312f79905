// Assembles the demo in web/demo/dist: the server's chat page with a model in the browser in place of the server, the package, and the tiny model.

import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';

const here = import.meta.dirname;
const web = join(here, '..');
const page = join(web, '../src/serve/page');
const out = join(here, 'dist');

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, 'models'), { recursive: true });
cpSync(page, join(out, 'page'), { recursive: true });
for (const name of ['index.html', 'api.js', 'sse.js']) rmSync(join(out, 'page', name));
cpSync(join(here, 'local.js'), join(out, 'page/api.js'));
cpSync(join(web, 'pkg'), join(out, 'wingbeat'), { recursive: true });
cpSync(join(web, 'pkg-tiny'), join(out, 'models/tiny'), { recursive: true });
for (const name of ['start.js', 'start.css', 'models.json']) cpSync(join(here, name), join(out, name));

const replaced = (text, from, to) => {
  if (!text.includes(from)) throw new Error(`index.html of the page lacks ${from}`);
  return text.replace(from, to);
};
let html = readFileSync(join(page, 'index.html'), 'utf8');
html = replaced(html, '<script type="module" src="page/main.js"></script>', '<link rel="stylesheet" href="start.css">\n<script type="module" src="start.js"></script>');
html = replaced(html, '<body>', '<body class="starting">');
html = replaced(html, '<div id="app">', `${readFileSync(join(here, 'start.html'), 'utf8')}<div id="app" hidden>`);
writeFileSync(join(out, 'index.html'), html);

const files = (folder) => readdirSync(folder).flatMap((name) => (statSync(join(folder, name)).isDirectory() ? files(join(folder, name)) : [join(folder, name)]));
const own = files(out)
  .map((file) => relative(out, file))
  .filter((file) => !file.startsWith('models/') && !/\.(d\.ts|md)$|LICENSE|package\.json$/.test(file))
  .sort();
const hash = createHash('sha256');
for (const file of own) hash.update(file).update(readFileSync(join(out, file)));
const worker = readFileSync(join(here, 'sw.js'), 'utf8').replace('__VERSION__', hash.digest('hex').slice(0, 16)).replace('__FILES__', JSON.stringify(own));
writeFileSync(join(out, 'sw.js'), worker);
console.log(`web/demo/dist: ${own.length} files`);
