// Modules of Node. Their names are computed, so that bundlers for browsers do not try to include them.

/** True in Node, in Bun, and in Deno with Node's modules. */
export const isNode = typeof process !== 'undefined' && Boolean(process.versions?.node);

export const nodeModule = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `${'node'}:${name}`);

/** Loads an optional npm package. Rejects if it is not installed. */
export const optionalPackage = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `${name}`);
