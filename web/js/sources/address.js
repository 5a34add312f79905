// Finds the files of a model at an address of a file, an index of shards, or a manifest that `wingbeat convert --shard` wrote.

import { FileError } from '../errors.js';
import { WEIGHTS } from './choose.js';
import { json, request } from './request.js';

const MANIFEST = 'wingbeat.manifest.json';
const BESIDE = ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja', 'vocab.txt', 'rwkv_vocab_v20230424.txt'];

export const nameOf = (url) => decodeURIComponent(new URL(url).pathname.split('/').pop());

/** Makes an address absolute. The address of a worker from a blob cannot be the base. */
export const absolute = (text) => {
  const { href } = globalThis.location ?? {};
  try {
    return new URL(text, href && !/^(about|blob|data):/.test(href) ? href : undefined).href;
  } catch (cause) {
    throw new FileError(`${text}: expected an address such as https://example.org/model.safetensors`, { kind: 'file', cause, hint: 'give the whole address' });
  }
};

/** Returns the name of a file in a server's list. Throws if the name has a folder, because such a name could point anywhere. */
const plain = (name, url) => {
  if (typeof name === 'string' && name && !/[/\\]/.test(name)) return name;
  throw new FileError(`${url}: expected file names without folders, found ${JSON.stringify(name)}`, { kind: 'file', hint: 'put the files beside each other' });
};

async function ofManifest(url, options) {
  const { value } = await json(url, options);
  if (value?.format !== 'wingbeat-shards' || value.version !== 1 || !Array.isArray(value.files)) {
    throw new FileError(`${url}: expected a manifest of wingbeat, version 1`, { kind: 'file', hint: 'write it with `wingbeat convert MODEL FOLDER --shard 256M`' });
  }
  const files = value.files.map(({ name, bytes, sha256 }) => ({ name: plain(name, url), url: new URL(encodeURIComponent(name), url).href, size: bytes, sha256 }));
  const main = (files.find(({ name }) => name.endsWith('.index.json')) ?? files.find(({ name }) => WEIGHTS.test(name)))?.name;
  if (!main) throw new FileError(`${url}: the manifest names no weights`, { kind: 'file', hint: 'write it with `wingbeat convert MODEL FOLDER --shard 256M`' });
  return { files, main };
}

async function ofIndex(url, options) {
  const { value } = await json(url, options);
  const names = [...new Set(Object.values(value?.weight_map ?? {}))];
  if (!names.length) throw new FileError(`${url}: expected an index of shards with \`weight_map\``, { kind: 'file', hint: 'check the address' });
  const main = nameOf(url);
  const files = names.map((name) => ({ name: plain(name, url), url: new URL(encodeURIComponent(name), url).href }));
  return { files: [...files, { name: main, url }], main };
}

/** Adds those small files beside a file that the server has. */
async function withBeside(found, url, options) {
  // RWKV's own formats need no configuration, and a request for each absent file would fill the page's log.
  const isPlain = !found.main.endsWith('.index.json') && !/^(model|pytorch_model)\./.test(found.main);
  const wanted = options.sideFiles ?? (isPlain ? [] : BESIDE);
  const known = new Set(found.files.map((file) => file.name));
  const one = async (name) => {
    const beside = new URL(name, url).href;
    const response = await request(beside, options).catch((error) => {
      if (options.signal?.aborted) throw error;
      return null;
    });
    // some hosts answer an unknown address with a web page and the status 200
    if (!response?.ok || /^text\/html/.test(response.headers.get('content-type') ?? '')) return null;
    return { name, url: beside, bytes: new Uint8Array(await response.arrayBuffer()) };
  };
  const all = await Promise.all(wanted.filter((name) => !known.has(name)).map(one));
  return { ...found, files: [...found.files, ...all.filter(Boolean)] };
}

/** Returns the files of an address: `{name, main, files: [{name, url, size?, sha256?, bytes?}]}`. */
export async function atAddress(text, options) {
  const url = absolute(text);
  const name = nameOf(url);
  const named = (found) => ({ name: found.main.replace(/\..*$/, ''), ...found });
  if (name.endsWith('.manifest.json')) return named(await ofManifest(url, options));
  if (!name || !/\.[^.]+$/.test(name)) return named(await ofManifest(new URL(MANIFEST, url.endsWith('/') ? url : `${url}/`).href, options));
  const found = name.endsWith('.index.json') ? await ofIndex(url, options) : { files: [{ name, url }], main: name };
  return named(await withBeside(found, url, options));
}
