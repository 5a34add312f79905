// Words for numbers.

const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 2 });

export const number = (n) => Number(n).toLocaleString('en');

/** Returns a number with its noun in singular or plural. */
export const count = (n, noun) => `${number(n)} ${noun}${Number(n) === 1 ? '' : 's'}`;

/** Returns a large number in two digits: `1.5B`. */
export const compact = (n) => short.format(n);

/** Returns a number of bytes in a unit that fits. */
export const size = (bytes) => {
  const units = ['bytes', 'KB', 'MB', 'GB'];
  let i = 0;
  for (; bytes >= 1000 && i < 3; i++) bytes /= 1000;
  return `${i ? bytes.toFixed(1) : bytes} ${units[i]}`;
};
