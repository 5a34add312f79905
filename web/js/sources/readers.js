// Reads ranges of a user's files, of bytes in memory, and (in Node, Deno and Bun) of files on the disk.

import { FileError } from '../errors.js';
import { nodeModule } from '../node.js';
import { pairs } from './ranges.js';

/** A file of a user, or any blob. */
export class BlobFile {
  constructor(blob) {
    this.blob = blob;
    this.size = blob.size;
  }

  read(ranges) {
    const one = async ([start, end]) => {
      try {
        return new Uint8Array(await this.blob.slice(start, end).arrayBuffer());
      } catch (cause) {
        throw new FileError(`${this.blob.name ?? 'the file'}: the browser cannot read it any more`, { kind: 'file', cause, hint: 'choose the file again' });
      }
    };
    return Promise.all(pairs(ranges).map(one));
  }
}

/** Bytes in memory. */
export class MemoryFile {
  constructor(bytes) {
    this.bytes = bytes;
    this.size = bytes.length;
  }

  async read(ranges) {
    return pairs(ranges).map(([start, end]) => this.bytes.slice(start, end));
  }
}

/** Returns the error of a path that the system cannot read. */
export const unreadable = (path, cause) =>
  new FileError(`${path}: ${cause.code === 'ENOENT' ? 'no such file or folder' : cause.message}`, { kind: 'file', cause, hint: 'check the path' });

/** A file on the disk, in Node, Deno and Bun. */
export class PathFile {
  constructor(handle, size) {
    this.handle = handle;
    this.size = size;
  }

  static async open(path) {
    const { open } = await nodeModule('fs/promises');
    const handle = await open(path, 'r').catch((cause) => {
      throw unreadable(path, cause);
    });
    return new PathFile(handle, (await handle.stat()).size);
  }

  async read(ranges) {
    const read = [];
    for (const [start, end] of pairs(ranges)) {
      const bytes = new Uint8Array(end - start);
      for (let at = 0; at < bytes.length; ) {
        const { bytesRead } = await this.handle.read(bytes, at, bytes.length - at, start + at);
        if (!bytesRead) throw new FileError('the file became shorter while it was read', { kind: 'file', hint: 'load it again' });
        at += bytesRead;
      }
      read.push(bytes);
    }
    return read;
  }

  close() {
    return this.handle.close();
  }
}
