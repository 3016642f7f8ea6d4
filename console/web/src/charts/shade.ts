/** The shade of a cell, from 0 to 6, by its share of the largest. */
export const shade = (ticks: number, top: number) => (ticks === 0 ? 0 : Math.max(1, Math.ceil((ticks / Math.max(1, top)) * 6)));
