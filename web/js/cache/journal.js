// A small JSON value on the disk that survives an interruption at any moment: the value is written to two files in turn, so one file is always whole.

import { readJson, write } from './opfs.js';

const NAMES = ['entry-0.json', 'entry-1.json'];

/** Returns `{n, value}`, the newest value in a folder with its number, or null. */
async function newest(folder) {
  const all = await Promise.all(NAMES.map((name) => readJson(folder, name)));
  const whole = all.filter((each) => Number.isInteger(each?.n) && each.value);
  return whole.reduce((best, each) => (best && best.n > each.n ? best : each), null);
}

/** Returns the value in a folder, or null. */
export const valueIn = async (folder) => (await newest(folder))?.value ?? null;

export class Journal {
  static async open(folder) {
    const found = await newest(folder);
    return Object.assign(new Journal(), { folder, n: found?.n ?? 0, value: found?.value ?? null, saving: Promise.resolve() });
  }

  /** Writes the value. Writes are queued, so that an earlier value never replaces a later one. */
  save(value) {
    const work = async () => {
      this.n += 1;
      this.value = value;
      await write(this.folder, NAMES[this.n % 2], new TextEncoder().encode(JSON.stringify({ n: this.n, value })));
    };
    this.saving = this.saving.catch(() => {}).then(work);
    return this.saving;
  }
}
