// A folder on the disk for Node, Deno and Bun, with the methods of OPFS that the cache uses.

import { nodeModule } from '../node.js';

const absent = (cause) => Object.assign(new Error(cause.message), { name: cause.code === 'ENOENT' ? 'NotFoundError' : cause.name, code: cause.code, cause });

class DiskFile {
  kind = 'file';

  constructor(fs, path) {
    Object.assign(this, { fs, path });
  }

  async read(start, end) {
    const handle = await this.fs.open(this.path, 'r');
    try {
      const { size } = await handle.stat();
      const [from, to] = [Math.min(start, size), Math.min(end ?? size, size)];
      const bytes = new Uint8Array(to - from);
      for (let at = 0; at < bytes.length; ) {
        const { bytesRead } = await handle.read(bytes, at, bytes.length - at, from + at);
        if (!bytesRead) throw new Error('the file became shorter while it was read');
        at += bytesRead;
      }
      return bytes.buffer;
    } finally {
      await handle.close();
    }
  }

  async getFile() {
    return { arrayBuffer: () => this.read(0), slice: (start, end) => ({ arrayBuffer: () => this.read(start, end) }) };
  }

  /** Writes to a temporary file, which gets this file's name only when it is complete. So an interrupted write leaves the old file. */
  async createWritable() {
    const beside = `${this.path}.${process.pid}.part`;
    const handle = await this.fs.open(beside, 'w');
    return {
      write: (bytes) => handle.writeFile(bytes),
      close: async () => {
        await handle.close();
        await this.fs.rename(beside, this.path);
      },
    };
  }
}

class DiskFolder {
  kind = 'directory';

  constructor(fs, join, path) {
    Object.assign(this, { fs, join, path });
  }

  async getDirectoryHandle(name, { create = false } = {}) {
    const path = this.join(this.path, name);
    if (create) await this.fs.mkdir(path, { recursive: true });
    else await this.fs.stat(path).catch((cause) => Promise.reject(absent(cause)));
    return new DiskFolder(this.fs, this.join, path);
  }

  async getFileHandle(name, { create = false } = {}) {
    const path = this.join(this.path, name);
    if (!create) await this.fs.stat(path).catch((cause) => Promise.reject(absent(cause)));
    return new DiskFile(this.fs, path);
  }

  async removeEntry(name) {
    await this.fs.rm(this.join(this.path, name), { recursive: true, force: true });
  }

  async *entries() {
    for (const entry of await this.fs.readdir(this.path, { withFileTypes: true })) {
      const path = this.join(this.path, entry.name);
      yield [entry.name, entry.isDirectory() ? new DiskFolder(this.fs, this.join, path) : new DiskFile(this.fs, path)];
    }
  }
}

/** Returns the folder `npm` in the folder that `WINGBEAT_CACHE` names, or else in the folder `wingbeat` of the system's cache. Creates it. */
export async function diskFolder() {
  const fs = await nodeModule('fs/promises');
  const { join } = await nodeModule('path');
  const { homedir } = await nodeModule('os');
  const { WINGBEAT_CACHE, XDG_CACHE_HOME, LOCALAPPDATA } = process.env;
  const system = () => {
    if (process.platform === 'win32') return LOCALAPPDATA || join(homedir(), 'AppData', 'Local');
    return process.platform === 'darwin' ? join(homedir(), 'Library', 'Caches') : XDG_CACHE_HOME || join(homedir(), '.cache');
  };
  const path = join(WINGBEAT_CACHE || join(system(), 'wingbeat'), 'npm');
  await fs.mkdir(path, { recursive: true });
  return new DiskFolder(fs, join, path);
}
