// The files of the tiny model, as a source for `wingbeat.load`.

export const files = [new URL('./tiny-rwkv7.safetensors', import.meta.url).href, new URL('./vocab.txt', import.meta.url).href];
export default files;
