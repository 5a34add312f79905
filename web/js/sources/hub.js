// Models of the Hugging Face Hub, or of a server with the same addresses.

import { json } from './request.js';
import { chosen } from './choose.js';

export const HUB = 'https://huggingface.co';
/** How many pages of a repository's list are read. A page has 1000 files. */
const PAGES = 20;

/** Reads `hf:owner/repo[/path][@revision]`, or an address of the hub. Returns null for other texts. */
export const hubOf = (text, endpoint) => {
  const short = /^hf:([^/@]+\/[^/@]+)(?:\/([^@]+))?(?:@(.+))?$/.exec(text);
  if (short) return { repo: short[1], path: short[2] ?? null, revision: short[3] ?? 'main', endpoint };
  if (!text.startsWith(`${endpoint}/`)) return null;
  const long = /^\/([^/]+\/[^/?]+)(?:\/(?:resolve|blob|tree)\/([^/?]+)(?:\/([^?]+))?)?\/?(?:\?.*)?$/.exec(text.slice(endpoint.length));
  return long && { repo: long[1], revision: decodeURIComponent(long[2] ?? 'main'), path: long[3] ? decodeURIComponent(long[3]) : null, endpoint };
};

const encoded = (path) => path.split('/').map(encodeURIComponent).join('/');

/** Returns the entries of a folder in a repository, from at most `PAGES` pages. */
async function tree(url, options) {
  const entries = [];
  for (let page = 0; url && page < PAGES; page++) {
    const { value, response } = await json(url, options);
    entries.push(...value);
    const next = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get('link') ?? '')?.[1];
    url = next ? new URL(next, url).href : null;
  }
  return entries;
}

/** Returns the files of a repository: `{name, url, size, sha256}`, and the main file. */
export async function onHub({ repo, path, revision, endpoint }, options) {
  const folder = path?.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '';
  const entries = await tree(`${endpoint}/api/models/${repo}/tree/${encodeURIComponent(revision)}${folder ? `/${encoded(folder)}` : ''}`, options);
  const files = entries
    .filter((entry) => entry.type === 'file')
    .map((entry) => ({
      name: entry.path.split('/').pop(),
      url: `${endpoint}/${repo}/resolve/${encodeURIComponent(revision)}/${encoded(entry.path)}`,
      size: entry.lfs?.size ?? entry.size,
      sha256: entry.lfs?.oid ?? null,
    }));
  return { name: repo.split('/').pop(), ...chosen(files, path?.split('/').pop() ?? null, `hf:${repo}`) };
}
