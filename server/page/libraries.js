// Loads the bundled libraries when a text first needs them. Until then the page shows plain text.

const ready = new Map();
const loading = new Map();

const load = async (name) => {
  const module = await import(`./lib/${name}.js`);
  ready.set(name, module.default);
};

/** Returns a library, or `null` while it loads. `then` is called once when the library is ready; not at all if it cannot be loaded. */
export const library = (name, then) => {
  if (ready.has(name)) return ready.get(name);
  if (!loading.has(name)) loading.set(name, load(name));
  loading.get(name).then(then, () => loading.delete(name));
  return null;
};
