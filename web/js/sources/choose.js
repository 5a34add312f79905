// Chooses the files of one checkpoint in a folder, a repository or a list.

import { FileError, InputError } from '../errors.js';

export const WEIGHTS = /\.(safetensors|st|gguf|pth|bin)$/i;
/** Small files that belong to a model. */
const SIDE = /^(config\.json|generation_config\.json|tokenizer\.json|tokenizer\.model|tokenizer_config\.json|chat_template\.jinja|vocab\.txt|rwkv_vocab.*\.txt|rwkv_vocab.*\.json|20B_tokenizer\.json|.*\.index\.json)$/;
export const VOCABULARY = /^(tokenizer\.(json|model)|vocab\.txt|rwkv_vocab.*|20B_tokenizer\.json)$/;

const isShard = (name) => /-\d{5}-of-\d{5}\./.test(name);
const isIndex = (name) => name.endsWith('.index.json');

/**
 * Returns `{files, main}`: one checkpoint of `files`, and the small files beside it. `main` names the checkpoint, or is null if `files` has only one.
 * `place` is the beginning of error messages.
 */
export function chosen(files, main, place) {
  const side = files.filter((file) => SIDE.test(file.name));
  const weights = files.filter((file) => WEIGHTS.test(file.name));
  const small = side.filter((file) => !isIndex(file.name));
  const sharded = (index) => {
    const shards = weights.filter((file) => isShard(file.name) && file.name.endsWith('.safetensors'));
    return { files: [...shards, ...small, index], main: index.name };
  };
  if (main) {
    const one = files.find((file) => file.name === main);
    if (!one) throw new FileError(`${place}: no file ${main}`, { kind: 'file', hint: `found ${weights.map((file) => file.name).join(', ') || 'no weights'}` });
    if (isIndex(main)) return sharded(one);
    if (!isShard(main) && WEIGHTS.test(main)) return { files: [one, ...small], main };
    if (!isShard(main)) throw new FileError(`${place}: ${main} is no checkpoint (.safetensors, .st, .gguf or .pth)`, { kind: 'file', hint: 'name the checkpoint' });
  }
  const index = side.find((file) => isIndex(file.name));
  if (index && weights.some((file) => isShard(file.name))) return sharded(index);
  for (const kind of ['.safetensors', '.st', '.gguf', '.pth']) {
    const found = weights.filter((file) => file.name.toLowerCase().endsWith(kind) && !isShard(file.name));
    if (found.length > 1) {
      const names = found.map((file) => file.name);
      const some = `${names.slice(0, 6).join(', ')}${names.length > 6 ? ', …' : ''}`;
      throw new InputError(`${place}: expected one checkpoint, found ${names.length}: ${some}`, { kind: 'input', field: 'source', hint: 'name the file' });
    }
    if (found.length) return { files: [found[0], ...small], main: found[0].name };
  }
  const hint = weights.some((file) => isShard(file.name)) ? 'shards need their *.index.json' : 'name the checkpoint';
  throw new FileError(`${place}: no checkpoint (.safetensors, .st, .gguf or .pth)`, { kind: 'file', hint });
}
