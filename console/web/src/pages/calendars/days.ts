import { dayText } from "../../time";

/** Writes a date with its year: Fri 25 Dec 2026. What is no date stays as it is. */
export const datedText = (date: string) => {
  const day = dayText(date);
  return day === date ? date : `${day} ${date.slice(0, 4)}`;
};

/** Reads dates from a text that has one on each line, or several with commas or spaces between them. */
export const datesOf = (text: string) => text.split(/[\s,;]+/).filter(Boolean);

/** What a change adds to a list of dates, and what it removes. */
export function changed(before: string[], after: string[]) {
  const old = new Set(before);
  const now = new Set(after);
  return { added: after.filter((d) => !old.has(d)), removed: before.filter((d) => !now.has(d)) };
}
