// The tiny model as files of a server, and functions that load the model in a page, on the CPU.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './models.mjs';

export const weights = readFileSync(join(root, 'assets/models/small-world.safetensors'));
export const vocabulary = readFileSync(join(root, 'assets/vocab/small-world.txt'));
export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
export const digest = sha256(weights);
/** The hash of the weights that the engine computes. */
export const HASH = 'aa326b0f5f5d89da37a6cac196fae62b763b3f8fa1f84fbd29cca0eb43d152db';
/** Small pieces, so that the tiny model has several. */
export const PIECE = 1 << 20;

/** Answers addresses that end with the names of the tiny model's files. */
export const tiny = (path) => (path.endsWith('.safetensors') ? weights : path.endsWith('vocab.txt') ? vocabulary : null);
export const tinyAt = (base) => ['/tiny/small-world.safetensors', '/tiny/vocab.txt'].map((path) => base + path);

/** Loads a model in a page, on the CPU. Returns `{hash, notes, name, error, progress}`. `stopAt` aborts after so many bytes. */
export const loadIn = (page, source, options = {}) =>
  page.evaluate(
    async (source, { stopAt, ...options }) => {
      const wingbeat = await import('/pkg/index.js');
      const progress = [];
      const controller = new AbortController();
      try {
        const model = await wingbeat.load(source, {
          device: 'cpu',
          signal: controller.signal,
          onProgress: (event) => {
            progress.push(event);
            if (stopAt && event.stage === 'download' && event.loaded >= stopAt) controller.abort();
          },
          ...options,
        });
        const { weights_hash: hash, notes, name } = model.info;
        await model.free();
        return { hash, notes, name, progress };
      } catch (error) {
        return { error: { name: error.name, message: error.message, hint: error.hint, kind: error.kind, field: error.field }, progress };
      }
    },
    source,
    { pieceBytes: PIECE, ...options },
  );
