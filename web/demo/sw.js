// Keeps the files of this page, so that it opens without a network. It touches nothing else: no weights, no other addresses.

const VERSION = '__VERSION__';
const FILES = __FILES__;
const NAME = `wingbeat-page-${VERSION}`;
const scope = new URL('./', self.location.href);
const known = new Set(FILES.map((file) => new URL(file, scope).href));

self.addEventListener('install', (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll([...known].map((url) => new Request(url, { cache: 'reload' })))));
});

self.addEventListener('activate', (event) => {
  const old = (name) => name.startsWith('wingbeat-page-') && name !== NAME;
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name)))).then(() => self.clients.claim()));
});

self.addEventListener('fetch', (event) => {
  const { method, url, headers } = event.request;
  const address = url.split(/[?#]/)[0];
  const file = address === scope.href ? new URL('index.html', scope).href : address;
  if (method !== 'GET' || headers.has('range') || !known.has(file)) return;
  event.respondWith(caches.open(NAME).then((cache) => cache.match(file)).then((found) => found ?? fetch(event.request)));
});
