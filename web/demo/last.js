// Remembers the model that was loaded last, and the options. Without storage, the next visit asks again.

const NAME = 'wingbeat.demo.last';

/** Returns `{id}` (an entry of models.json) or `{address}`, each with `quant` and `device`; or `null`. */
export const last = () => {
  try {
    const found = JSON.parse(localStorage.getItem(NAME));
    return found && typeof found === 'object' ? found : null;
  } catch {
    return null;
  }
};

export const remember = (choice) => {
  try {
    localStorage.setItem(NAME, JSON.stringify(choice));
  } catch {
    // the storage is full or forbidden, so the next visit knows no last model
  }
};
