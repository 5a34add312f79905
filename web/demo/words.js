// Sizes, times and errors in words.

/** Returns a number of bytes in words, such as `12.3 MB`. */
export const size = (bytes) => {
  const [divisor, unit] = bytes >= 1e9 ? [1e9, 'GB'] : bytes >= 1e6 ? [1e6, 'MB'] : [1e3, 'KB'];
  return `${(bytes / divisor).toFixed(bytes >= 1e9 ? 2 : bytes >= 1e8 || bytes < 1e6 ? 0 : 1)} ${unit}`;
};

/** Returns a time in words, such as `about 40 s`. */
export const duration = (seconds) => (seconds < 90 ? `about ${Math.max(1, Math.round(seconds))} s` : `about ${Math.round(seconds / 60)} min`);

/** Returns a text as a sentence: with a capital letter and a full stop. */
export const sentence = (text) => {
  const trimmed = String(text ?? '').trim();
  if (!trimmed) return '';
  const begun = /^[a-z]+(\s|$)/.test(trimmed) ? trimmed[0].toUpperCase() + trimmed.slice(1) : trimmed;
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
};
