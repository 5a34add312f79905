// The files of the tiny model, as a source for `wingbeat.load`. They have names, because bundlers rename the files behind the addresses.

export const files = [
  { name: 'small-world.safetensors', url: new URL('./small-world.safetensors', import.meta.url).href },
  { name: 'vocab.txt', url: new URL('./vocab.txt', import.meta.url).href },
];
export default files;
