// Finds the files of a model: turns what the caller gives into a list of files that can be read by ranges.

import { FileError, InputError } from './errors.js';
import { CachedFile, entryOf, isAvailable } from './cache.js';
import { BlobFile, MemoryFile, PathFile, UrlFile, request, stat } from './ranges.js';
import { isNode, nodeModule } from './node.js';

const HUB = 'https://huggingface.co';
const MANIFEST = 'wingbeat.manifest.json';
const WEIGHTS = /\.(safetensors|st|gguf|pth|bin)$/i;
/** Small files that belong to a model. */
const SIDE = /^(config\.json|generation_config\.json|tokenizer\.json|tokenizer\.model|tokenizer_config\.json|chat_template\.jinja|vocab\.txt|rwkv_vocab.*\.txt|rwkv_vocab.*\.json|20B_tokenizer\.json|.*\.index\.json)$/;
const VOCABULARY = /^(tokenizer\.(json|model)|vocab\.txt|rwkv_vocab.*|20B_tokenizer\.json)$/;

const nameOf = (url) => decodeURIComponent(new URL(url).pathname.split('/').pop());

/** Reads `hf:owner/repo[/path][@revision]`, or an address of the hub. */
const hubOf = (text, endpoint) => {
  const short = /^hf:([^/@]+\/[^/@]+)(?:\/([^@]+))?(?:@(.+))?$/.exec(text);
  if (short) return { repo: short[1], path: short[2] ?? null, revision: short[3] ?? 'main', endpoint };
  if (!text.startsWith(`${endpoint}/`)) return null;
  const long = /^\/([^/]+\/[^/]+)(?:\/(?:resolve|blob|tree)\/([^/?]+)(?:\/([^?]+))?)?\/?(?:\?.*)?$/.exec(text.slice(endpoint.length));
  return long ? { repo: long[1], revision: long[2] ?? 'main', path: long[3] ?? null, endpoint } : null;
};

const json = async (url, options) => {
  const response = await request(url, options);
  if (!response.ok) {
    const hint = [401, 403].includes(response.status) ? 'the model needs a permission: download it and give the files' : 'check the name';
    throw new FileError(`${url}: the server answered ${response.status}`, { kind: 'file', hint });
  }
  try {
    return await response.json();
  } catch (cause) {
    throw new FileError(`${url}: expected JSON`, { kind: 'file', cause });
  }
};

/** Returns the files of a repository of the hub: `{name, url, size, sha256}`, and the main file. */
async function onHub({ repo, path, revision, endpoint }, options) {
  const folder = path?.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '';
  const entries = await json(`${endpoint}/api/models/${repo}/tree/${encodeURIComponent(revision)}${folder ? `/${folder}` : ''}`, options);
  const files = entries
    .filter((entry) => entry.type === 'file')
    .map((entry) => ({
      name: entry.path.split('/').pop(),
      url: `${endpoint}/${repo}/resolve/${encodeURIComponent(revision)}/${entry.path.split('/').map(encodeURIComponent).join('/')}`,
      size: entry.lfs?.size ?? entry.size,
      sha256: entry.lfs?.oid ?? null,
    }));
  return chosen(files, path?.split('/').pop() ?? null, `hf:${repo}`);
}

/** Keeps one checkpoint and the small files. */
function chosen(files, main, place) {
  const isShard = (name) => /-\d{5}-of-\d{5}\./.test(name);
  const side = files.filter((file) => SIDE.test(file.name));
  const weights = files.filter((file) => WEIGHTS.test(file.name));
  if (main) {
    const one = files.find((file) => file.name === main);
    if (!one) throw new FileError(`${place}: no file ${main}`, { kind: 'file', hint: `found ${weights.map((file) => file.name).join(', ') || 'no weights'}` });
    if (!isShard(main) && WEIGHTS.test(main)) return { files: [one, ...side.filter((file) => !file.name.endsWith('.index.json'))], main };
  }
  const shards = weights.filter((file) => isShard(file.name) && file.name.endsWith('.safetensors'));
  if (shards.length && side.some((file) => file.name === 'model.safetensors.index.json')) return { files: [...shards, ...side], main: 'model.safetensors.index.json' };
  for (const kind of ['.safetensors', '.st', '.gguf', '.pth']) {
    const found = weights.filter((file) => file.name.endsWith(kind) && !isShard(file.name));
    if (found.length > 1) {
      const names = found.map((file) => file.name);
      throw new InputError(`${place}: expected one checkpoint, found ${names.length}: ${names.slice(0, 6).join(', ')}`, { kind: 'input', field: 'source', hint: 'name the file' });
    }
    if (found.length) return { files: [found[0], ...side.filter((file) => !file.name.endsWith('.index.json'))], main: found[0].name };
  }
  throw new FileError(`${place}: no checkpoint (.safetensors, .st, .gguf or .pth)`, { kind: 'file', hint: 'give the address of the checkpoint' });
}

/** Returns the files of a manifest that `wingbeat convert --shard` wrote. */
async function ofManifest(url, options) {
  const manifest = await json(url, options);
  if (manifest.format !== 'wingbeat-shards' || manifest.version !== 1 || !Array.isArray(manifest.files)) {
    throw new FileError(`${url}: expected a manifest of wingbeat, version 1`, { kind: 'file', hint: 'write it with `wingbeat convert MODEL FOLDER --shard 256M`' });
  }
  const files = manifest.files.map(({ name, bytes, sha256 }) => ({ name, url: new URL(name, url).href, size: bytes, sha256 }));
  if (files.some(({ name }) => typeof name !== 'string' || /[/\\]/.test(name))) throw new FileError(`${url}: a file name in the manifest has a folder`, { kind: 'file' });
  const main = files.find(({ name }) => name.endsWith('.index.json'))?.name ?? files.find(({ name }) => WEIGHTS.test(name))?.name;
  return { files, main };
}

async function ofUrl(text, options) {
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  const url = new URL(text, base && base !== 'about:blank' && !base.startsWith('blob:') ? base : undefined).href;
  const name = nameOf(url);
  if (name.endsWith('.manifest.json')) return ofManifest(url, options);
  if (name.endsWith('.index.json')) {
    const index = await json(url, options);
    const names = [...new Set(Object.values(index.weight_map ?? {}))];
    const files = [...names, name].map((each) => ({ name: each, url: new URL(each, url).href }));
    return { files, main: name, beside: url };
  }
  if (!name || url.endsWith('/')) return ofManifest(new URL(MANIFEST, url.endsWith('/') ? url : `${url}/`).href, options);
  return { files: [{ name, url }], main: name, beside: url };
}

/** Adds the small files beside a file behind an address, as far as the server has them. */
async function besides(found, options) {
  if (!found.beside) return found;
  const names = ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja', 'vocab.txt', 'rwkv_vocab_v20230424.txt'];
  const known = new Set(found.files.map((file) => file.name));
  const isIndex = found.main.endsWith('.index.json');
  // RWKV's own formats need no configuration, and a request for each absent file would fill the page's log
  const wanted = options.sideFiles ?? (isIndex || /^(model|pytorch_model)\./.test(found.main) ? names : []);
  const all = await Promise.all(
    wanted
      .filter((name) => !known.has(name))
      .map(async (name) => {
        const url = new URL(name, found.beside).href;
        const response = await request(url, options).catch(() => null);
        return response?.ok ? { name, bytes: new Uint8Array(await response.arrayBuffer()) } : null;
      }),
  );
  return { ...found, files: [...found.files, ...all.filter(Boolean)] };
}

const isBlob = (value) => typeof Blob !== 'undefined' && value instanceof Blob;

async function ofFolder(handle, found = []) {
  for await (const entry of handle.values()) if (entry.kind === 'file') found.push(await entry.getFile());
  return found;
}

async function ofPath(path) {
  const { stat: statPath, readdir } = await nodeModule('fs/promises');
  const { join, basename, dirname } = await nodeModule('path');
  const isFolder = (await statPath(path)).isDirectory();
  const folder = isFolder ? path : dirname(path);
  const names = (await readdir(folder, { withFileTypes: true })).filter((entry) => entry.isFile()).map((entry) => entry.name);
  const files = names.map((name) => ({ name, path: join(folder, name) }));
  return chosen(files, isFolder ? null : basename(path), path);
}

/** Returns `{name, files: [{name, url | blob | bytes | path, size?, sha256?}], main}` of what the caller gave. */
export async function find(source, options = {}) {
  const endpoint = (options.endpoint ?? HUB).replace(/\/$/, '');
  if (source instanceof URL) source = source.href;
  if (typeof source === 'string') {
    const hub = hubOf(source, endpoint);
    if (hub) return { name: hub.repo.split('/').pop(), ...(await onHub(hub, options)) };
    const isPath = isNode && !/^[a-z]+:\/\//i.test(source);
    const found = isPath ? await ofPath(source.replace(/^file:\/\//, '')) : await besides(await ofUrl(source, options), options);
    return { name: found.main.replace(/\..*$/, ''), ...found };
  }
  if (isBlob(source)) return { name: 'model', files: [{ name: source.name ?? 'model.safetensors', blob: source }], main: source.name ?? 'model.safetensors' };
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
    const bytes = source instanceof ArrayBuffer ? new Uint8Array(source) : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    return { name: 'model', files: [{ name: 'model.safetensors', bytes }], main: null };
  }
  if (source?.kind === 'directory') return { name: source.name, ...chosen((await ofFolder(source)).map((blob) => ({ name: blob.name, blob })), null, source.name) };
  if (source && typeof source[Symbol.iterator] === 'function') {
    const list = [...source];
    if (!list.length) throw new InputError('expected at least one file, found none', { kind: 'input', field: 'source' });
    const files = list.map((entry) => {
      if (isBlob(entry)) return { name: entry.name, blob: entry };
      if (typeof entry === 'string' || entry instanceof URL) return { name: nameOf(String(new URL(entry, globalThis.location?.href))), url: String(new URL(entry, globalThis.location?.href)) };
      if (entry?.bytes) return { ...entry, bytes: entry.bytes instanceof Uint8Array ? entry.bytes : new Uint8Array(entry.bytes) };
      if (entry?.url || entry?.blob) return entry;
      throw new InputError('expected files, addresses or {name, bytes}', { kind: 'input', field: 'source' });
    });
    return { name: 'model', ...chosen(files, null, 'the files') };
  }
  throw new InputError('expected an address, hf:OWNER/REPO, a file, files, a folder or bytes as the source of a model', { kind: 'input', field: 'source' });
}

/** Opens the files. Returns the object that the WebAssembly module reads, and what was opened. */
export async function open(found, { signal, onDownload, cache = true, world, fetch, integrity, pieceBytes, headers } = {}) {
  const useCache = cache !== false && (await isAvailable());
  const files = [];
  const opened = [];
  let done = 0;
  let total = 0;
  let began = 0;
  const tell = (n, file) => {
    began ||= performance.now();
    done += n;
    onDownload?.({ stage: 'download', loaded: Math.min(done, total), total, file, rate: Math.round(done / Math.max(0.05, (performance.now() - began) / 1000)) });
  };
  for (const entry of found.files) {
    const { name } = entry;
    let reader;
    if (entry.blob) reader = new BlobFile(entry.blob);
    else if (entry.bytes) reader = new MemoryFile(entry.bytes);
    else if (entry.path) reader = await PathFile.open(entry.path);
    else {
      const known = useCache ? await entryOf(entry.url) : null;
      const isKnown = known && known.hashes.filter(Boolean).length === Math.ceil(known.size / known.pieceBytes);
      // a complete file in the cache needs no request
      const about = isKnown ? { size: known.size, etag: known.etag, ranged: true } : await stat(entry.url, { signal, fetch, headers });
      const size = about.size ?? entry.size;
      if (!about.ranged && (size === null || size > 64 << 20 || WEIGHTS.test(name))) {
        if (size !== null && size <= 64 << 20) {
          const response = await request(entry.url, { signal, fetch, headers });
          reader = new MemoryFile(new Uint8Array(await response.arrayBuffer()));
        } else {
          const hint = 'serve the file from a server that has ranges (206 Partial Content), or give it as a File';
          throw new FileError(`${entry.url}: the server sends only whole files`, { kind: 'file', hint });
        }
      } else if (!about.ranged) {
        const response = await request(entry.url, { signal, fetch, headers });
        reader = new MemoryFile(new Uint8Array(await response.arrayBuffer()));
      } else {
        total += size;
        const url = new UrlFile(entry.url, { size, etag: about.etag, signal, fetch, headers, onBytes: (n) => tell(n, name) });
        const expected = entry.sha256 ?? (typeof integrity === 'string' && name === found.main ? integrity : integrity?.[name]) ?? null;
        reader = useCache ? await CachedFile.open(entry.url, { source: url, size, etag: about.etag, expected, signal, ...(pieceBytes ? { pieceBytes } : {}) }) : url;
        if (useCache) done += reader.bytes;
      }
    }
    files.push({ name, size: reader.size });
    opened.push(reader);
  }
  if (world && !found.files.some((file) => VOCABULARY.test(file.name))) {
    const bytes = await world();
    files.push({ name: 'rwkv_vocab_v20230424.txt', size: bytes.length });
    opened.push(new MemoryFile(bytes));
  }
  let failure = null;
  const read = async (file, ranges) => {
    try {
      return await opened[file].read(Array.from(ranges));
    } catch (error) {
      failure ??= error;
      throw error;
    }
  };
  return {
    source: { name: found.name, main: found.main ?? undefined, files, read },
    /** The first error of reading. The module loses its cause. */
    get failure() {
      return failure;
    },
    urls: found.files.filter((file) => file.url).map((file) => file.url),
    /** Fetches what the load did not read, and compares hashes. */
    complete: () => Promise.all(opened.map((file) => file.complete?.())),
    close: () => Promise.all(opened.map((file) => file.close?.())),
  };
}
