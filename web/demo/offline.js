// Registers the service worker, which keeps the files of the page. A new version of the page waits until the user takes it.

import { toast } from '../page/toast.js';

/** Registers the service worker. Browsers offer service workers only to pages with HTTPS or from localhost; other pages do not work offline. */
export const keepOffline = async () => {
  const workers = navigator.serviceWorker;
  if (!workers) return;
  // the first worker takes over without a reload; a later worker has new files, so the user decides when to use it
  const isFirst = !workers.controller;
  let isAsked = false;
  workers.addEventListener('controllerchange', () => isAsked && location.reload());
  const offer = (worker) => {
    if (!worker || isFirst) return;
    toast('A new version of this page is ready.', {
      label: 'Use it',
      run: () => {
        isAsked = true;
        worker.postMessage('take over');
      },
    });
  };
  const registration = await workers.register(new URL('../sw.js', import.meta.url)).catch(() => null);
  if (!registration) return;
  offer(registration.waiting);
  registration.addEventListener('updatefound', () => {
    const worker = registration.installing;
    worker?.addEventListener('statechange', () => worker.state === 'installed' && offer(worker));
  });
};
