// Words for dates.

const DAY = 86_400_000;
const LOCALE = 'en';

const clock = new Intl.DateTimeFormat(LOCALE, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const short = new Intl.DateTimeFormat(LOCALE, { day: 'numeric', month: 'short' });
const month = new Intl.DateTimeFormat(LOCALE, { month: 'long', year: 'numeric' });
const full = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'full', timeStyle: 'short', hourCycle: 'h23' });

const midnight = (time) => new Date(time).setHours(0, 0, 0, 0);
// rounded, because the day on which summer time begins or ends has 23 or 25 hours
const daysAgo = (time, now) => Math.round((midnight(now) - midnight(time)) / DAY);

/** Returns the heading for a time: today, yesterday, the last 7 days, or a month with its year. */
export const period = (time, now = Date.now()) => {
  const days = daysAgo(time, now);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  return days < 7 ? 'Last 7 days' : month.format(time);
};

/** Returns the time of today, or the date of an earlier day. */
export const brief = (time, now = Date.now()) => (daysAgo(time, now) <= 0 ? clock.format(time) : short.format(time));

/** Returns date and time. */
export const complete = (time) => full.format(time);

/** Returns a number of milliseconds as seconds, or as minutes and seconds. */
export const seconds = (ms) => {
  const all = Math.max(0, Math.round(ms / 1000));
  return all < 60 ? `${all} s` : `${Math.floor(all / 60)} min ${all % 60} s`;
};
