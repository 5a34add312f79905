// Modules of Node. Bundlers for browsers must not look for them, so their names are computed.

/** Whether this is Node, Bun or Deno with Node's modules. */
export const isNode = typeof process !== 'undefined' && Boolean(process.versions?.node);

export const nodeModule = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `${'node'}:${name}`);

/** Loads an npm package that need not be installed. */
export const optionalPackage = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `${name}`);
