// A web server for the tests: files with ranges, a count of requests, and faults on demand.

import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs';
import http from 'node:http';
import { extname, join, normalize } from 'node:path';

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.json': 'application/json', '.svg': 'image/svg+xml' };

/**
 * Serves `folders` (`{'/pkg': path}`). `state.fault(request, path)` may return a fault: `{status, after}` (with `Retry-After`), `{cutAfter: bytes}`,
 * `{whole: true}` (no ranges), `{flip: offset}`, `{etag: version}`, `{shift: n}` (other bytes than asked for), `{delay: ms}`, `{instead: bytes, type}`.
 */
export async function serve(folders, headers = {}) {
  const state = { log: [], fault: null };
  const server = http.createServer(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://x');
    const path = decodeURIComponent(pathname);
    state.log.push({ method: request.method, path, range: request.headers.range ?? null });
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    const prefix = Object.keys(folders).find((each) => path === each || path.startsWith(`${each}/`));
    if (path === '/' || (!prefix && extname(path) === '.html')) {
      response.setHeader('content-type', 'text/html');
      return response.end('<!doctype html><html lang="en"><title>test</title><body></body></html>');
    }
    const fault = state.fault?.(request, path) ?? {};
    const content = fault.instead ?? (typeof folders[prefix] === 'function' ? folders[prefix](path) : null);
    if (content && extname(path) === '.html') {
      response.setHeader('content-type', 'text/html');
      return response.end(content);
    }
    const file = prefix && typeof folders[prefix] === 'string' ? join(folders[prefix], normalize(path.slice(prefix.length))) : null;
    if (!content && (!file || !existsSync(file) || statSync(file).isDirectory())) {
      response.statusCode = 404;
      return response.end();
    }
    const size = content ? content.length : statSync(file).size;
    if (fault.delay) await new Promise((done) => setTimeout(done, fault.delay));
    if (fault.status) {
      response.statusCode = fault.status;
      if (fault.after) response.setHeader('retry-after', fault.after);
      return response.end();
    }
    response.setHeader('content-type', fault.type ?? TYPES[extname(path)] ?? 'application/octet-stream');
    response.setHeader('etag', `"${size}-${fault.etag ?? 1}"`);
    const asked = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    let [start, end] = [0, size - 1];
    if (asked && !fault.whole) {
      start = Number(asked[1]) + (fault.shift ?? 0);
      end = asked[2] ? Math.min(Number(asked[2]) + (fault.shift ?? 0), size - 1) : size - 1;
      response.statusCode = 206;
      response.setHeader('content-range', `bytes ${start}-${end}/${size}`);
      response.setHeader('accept-ranges', 'bytes');
    }
    response.setHeader('content-length', end - start + 1);
    if (request.method === 'HEAD') return response.end();
    if (content || fault.cutAfter !== undefined || fault.flip !== undefined) {
      const bytes = Buffer.from((content ?? readFileSync(file)).subarray(start, end + 1));
      if (fault.flip !== undefined && fault.flip >= start && fault.flip <= end) bytes[fault.flip - start] ^= 1;
      if (fault.cutAfter === undefined || bytes.length <= fault.cutAfter) return response.end(bytes);
      response.write(bytes.subarray(0, fault.cutAfter), () => response.socket.destroy());
      return;
    }
    createReadStream(file, { start, end }).pipe(response);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  state.url = `http://127.0.0.1:${server.address().port}`;
  state.count = (text) => state.log.filter(({ path }) => path.includes(text)).length;
  state.close = () => new Promise((done) => server.close(done));
  return state;
}
