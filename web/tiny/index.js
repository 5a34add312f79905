// The files of the tiny model, as a source for `wingbeat.load`. Each entry has a name, because bundlers rename the files at the addresses.

export const files = [
  { name: 'small-world.safetensors', url: new URL('./small-world.safetensors', import.meta.url).href },
  { name: 'vocab.txt', url: new URL('./vocab.txt', import.meta.url).href },
];
export default files;
