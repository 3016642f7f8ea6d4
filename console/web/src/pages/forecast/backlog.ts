/** Returns how many ticks wait at the end of each minute, if so many a second pass. */
export function queue(due: number[], perSecond: number): number[] {
  let waiting = 0;
  return due.map((n) => {
    waiting = Math.max(0, waiting + n - perSecond * 60);
    return waiting;
  });
}

/** Spreads the ticks of each minute evenly over so many minutes from it on. */
export function spread(due: number[], minutes: number): number[] {
  if (minutes <= 1) return due;
  const out = new Array<number>(due.length).fill(0);
  due.forEach((n, i) => {
    if (n === 0) return;
    for (let k = i; k < Math.min(due.length, i + minutes); k++) out[k] += n / minutes;
  });
  return out;
}

/** Returns for how long, in ms, a tick waits at most that comes behind such a backlog. */
export const longest = (waiting: number[], perSecond: number) => (waiting.reduce((a, b) => Math.max(a, b), 0) / perSecond) * 1000;
