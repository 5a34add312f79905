// Files that the user drops on the page or chooses in a dialog.

const fileOf = (entry) => new Promise((done, failed) => entry.file(done, failed));

/** Returns the files of a folder, without the files of its subfolders. */
const filesOf = async (folder) => {
  const reader = folder.createReader();
  const found = [];
  // browsers return the entries in parts
  for (;;) {
    const part = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!part.length) break;
    found.push(...part.filter((entry) => entry.isFile));
  }
  return Promise.all(found.map(fileOf));
};

/** Returns `{name, files}` of a drop: the first folder with its files, or the dropped files with the name of the first file. */
const dropped = async (transfer) => {
  // reads both lists now, because the browser empties them after the first await
  const files = [...transfer.files];
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const folder = entries.find((entry) => entry.isDirectory);
  if (folder) return { name: folder.name, files: await filesOf(folder) };
  return { name: files[0]?.name ?? '', files };
};

/** Calls `f` with `{name, files}` when files are dropped anywhere, unless `isBusy()`. The body has the class `drops` while files are above the page. */
export const onDrop = (isBusy, f) => {
  const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
  const mark = (isOver) => document.body.classList.toggle('drops', isOver);
  addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    // otherwise the browser would open the file in place of the page
    event.preventDefault();
    event.dataTransfer.dropEffect = isBusy() ? 'none' : 'copy';
    mark(!isBusy());
  });
  addEventListener('dragleave', (event) => event.relatedTarget || mark(false));
  addEventListener('drop', async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(false);
    if (isBusy()) return;
    const found = await dropped(event.dataTransfer);
    if (found.files.length) f(found);
  });
};

/** Makes a button open a dialog for files. `f` receives `{name, files}`. */
export const onChoose = (button, input, f) => {
  button.addEventListener('click', () => input.click());
  input.addEventListener('change', () => {
    const all = [...input.files];
    // otherwise the browser reports no change if the user chooses the same file again
    input.value = '';
    if (!all.length) return;
    const isTop = (file) => file.webkitRelativePath.split('/').length <= 2;
    const [first] = all;
    f({ name: first.webkitRelativePath.split('/')[0] || first.name, files: all.filter(isTop) });
  });
};
