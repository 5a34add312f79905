// The service worker. Keeps the files of this page, so that the page opens without a network, and answers requests for exactly these files. It does
// not touch other requests: weights, the storage of models, and other origins.

const VERSION = '__VERSION__';
// maps the path of each file to its hash, or to null
const FILES = __FILES__;

const scope = new URL('./', self.location.href);
// other pages of this origin have caches, too
const PREFIX = `wingbeat-demo ${scope.pathname} `;
const NAME = PREFIX + VERSION;
const page = new URL('index.html', scope).href;
const known = new Map(Object.entries(FILES).map(([path, hash]) => [new URL(path, scope).href, hash]));

const fetched = async ([url, hash]) => {
  // if the host has a file of another version, `integrity` fails, and the old version stays. Hosts may change index.html, so index.html has no hash
  const response = await fetch(url, { cache: 'no-cache', ...(hash && { integrity: hash }) });
  if (!response.ok) throw new Error(`${url}: status ${response.status}`);
  // browsers refuse a page that comes from a redirect
  return response.redirected ? new Response(response.body, { headers: response.headers }) : response;
};

const install = async () => {
  const cache = await caches.open(NAME);
  await Promise.all([...known].map(async (entry) => cache.put(entry[0], await fetched(entry))));
};

const activate = async () => {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith(PREFIX) && name !== NAME).map((name) => caches.delete(name)));
  await self.clients.claim();
};

self.addEventListener('install', (event) => event.waitUntil(install()));
self.addEventListener('activate', (event) => event.waitUntil(activate()));
self.addEventListener('message', (event) => event.data === 'take over' && self.skipWaiting());

self.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET' || request.headers.has('range')) return;
  const url = new URL(request.url);
  const isPage = request.mode === 'navigate' && url.origin === scope.origin && [scope.pathname, `${scope.pathname}index.html`].includes(url.pathname);
  const file = isPage ? page : url.href;
  if (!known.has(file)) return;
  event.respondWith(caches.open(NAME).then((cache) => cache.match(file)).then((found) => found ?? fetch(request)));
});
