// Applies the stored theme before the first paint. A classic script, because modules run only after the document is parsed. The theme is in
// localStorage, because IndexedDB answers only after the first paint.
(() => {
  const root = document.documentElement;
  const names = ['system', 'light', 'dark'];
  let theme = 'system';
  try {
    theme = localStorage.getItem('wingbeat.theme') ?? 'system';
  } catch {
    // a browser without storage uses the system's theme
  }
  const apply = () => {
    if (theme === 'light' || theme === 'dark') root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply();

  addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    const label = () => (button.querySelector('span').textContent = `Theme: ${names.includes(theme) ? theme : 'system'}`);
    label();
    button.addEventListener('click', () => {
      theme = names[(names.indexOf(theme) + 1) % names.length];
      try {
        localStorage.setItem('wingbeat.theme', theme);
      } catch {
        // the theme lasts until the page is closed
      }
      apply();
      label();
    });
  });
})();
