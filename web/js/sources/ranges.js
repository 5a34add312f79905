// Ranges of bytes, as flat lists: start, end, start, end, …

/** Ranges that are at most this far apart are read by one request, unless it would exceed `PART_BYTES`. A range above `PART_BYTES` is split. */
const GAP_BYTES = 64 << 10;
export const PART_BYTES = 16 << 20;

/** Returns the pairs [start, end] of a flat list. */
export const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i], flat[2 * i + 1]]);

/** Joins near ranges. Returns `{start, end, items}`; `items` are the positions of the ranges in the list. */
export function joined(ranges) {
  const order = ranges.map((_, i) => i).filter((i) => ranges[i][1] > ranges[i][0]);
  order.sort((a, b) => ranges[a][0] - ranges[b][0]);
  const runs = [];
  for (const i of order) {
    const [start, end] = ranges[i];
    const last = runs.at(-1);
    if (last && start <= last.end + GAP_BYTES && Math.max(end, last.end) - last.start <= PART_BYTES) {
      last.end = Math.max(last.end, end);
      last.items.push(i);
    } else runs.push({ start, end, items: [i] });
  }
  return runs;
}

/** Splits a range into parts of at most `PART_BYTES`. */
export const split = (start, end) => {
  const n = Math.max(1, Math.ceil((end - start) / PART_BYTES));
  return Array.from({ length: n }, (_, i) => [start + i * PART_BYTES, Math.min(end, start + (i + 1) * PART_BYTES)]);
};

/** Lets at most `n` tasks run at once. */
export class Gate {
  constructor(n) {
    this.free = n;
    this.waiting = [];
  }

  async run(task) {
    if (this.free > 0) this.free -= 1;
    else await new Promise((done) => this.waiting.push(done));
    try {
      return await task();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.free += 1;
    }
  }
}
