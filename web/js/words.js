// Error texts of the library contain names of the library and its programs. This file replaces them by names of this package.

/** Phrases of the library, and their replacements. */
const PHRASES = [
  [/, run `wingbeat doctor`/g, ''],
  [/run `wingbeat doctor` and report its output/g, 'report what `wingbeat.check()` returns'],
  [/run `wingbeat doctor`/g, 'ask `wingbeat.check()` what this place can run'],
  [/make a state with `Session::save`/g, 'make a state with `save_state`, and take its file from `model.states.export`'],
  [/`wingbeat embed`(, or Request::vectors)?/g, '`model.embed`'],
  [/(`wingbeat (?:rerank|classify)`), or \w+::\w+/g, 'the program: $1'],
  [/merge the adapter into its model with `Conversion::lora`/g, 'merge the adapter into its model with the program: `wingbeat convert --lora`'],
  [/name (the model's vocabulary file|the file of the model's vocabulary, which has \d+ ids,|a vocabulary file|a file) with `vocab`/g, 'give $1 as one of the files: `load([model, vocabulary])`'],
  [/no file is needed: `vocab=world`/g, 'no file is needed'],
  [/give this file as `vocab` and the checkpoint as `model`/g, 'give the checkpoint beside this file: `load([model, vocabulary])`'],
  [/give a model with `model`/g, 'give a model as the source of `load`'],
  [/use `Engine::start_task`, and run its future as a task/g, 'this is a mistake of the package: report it'],
  [/`wingbeat devices` lists the numbers of gpu:N/g, 'a browser has one GPU'],
  // options: `device=cpu`
  [/`([a-z_]+)=([a-z0-9_-]+)`/g, '`$1: "$2"`'],
];

/** Returns a text of the library in the words of this package. */
export const renamed = (text) => PHRASES.reduce((text, [from, to]) => text.replace(from, to), text);
