import { expect, test, vi } from "vitest";

vi.stubGlobal("document", { hidden: false, addEventListener() {}, documentElement: { dataset: {} } });
const { columnsOf, localTimes } = await import("../../src/pages/workflows/offsets");

const zone = (timezone: string, offset: string, next_change: { at: string; offset: string } | null = null) => ({ timezone, offset, next_change }) as never;
const zones = [zone("Asia/Tokyo", "+09:00"), zone("Asia/Kolkata", "+05:30"), zone("Europe/Berlin", "+01:00", { at: "2026-03-29T01:00:00Z", offset: "+02:00" })];
const group = (timezone: string, count: number, next_at: string) => ({ workflow: "w", timezone, reading: "", count, next_at }) as never;
const groups = [
  group("Asia/Tokyo", 30, "2026-01-06T00:00:00Z"),
  group("Asia/Kolkata", 20, "2026-01-06T03:30:00Z"),
  group("Europe/Berlin", 5, "2026-03-29T07:00:00Z"), // 09:00 after the change
  group("Europe/Berlin", 1, "2026-01-06T11:00:00Z"),
];
const ended = (at: string, succeeded: number) => ({ at, succeeded, failed: 1, skipped: { overlap: 2 } }) as never;
const series = [ended("2026-01-05T00:00:00Z", 29), ended("2026-01-06T00:00:00Z", 28), ended("2026-01-06T03:30:00Z", 19)];

const shown = (moment: string) => columnsOf(groups, zones, series, "09:00", Date.parse(moment)).map((c) => [c.offset, c.minute, c.planned, c.succeeded, c.failed, c.skipped]);

test("the local times of a workflow begin with the one that most schedules have", () => {
  expect(localTimes(groups, zones)).toEqual(["09:00", "12:00"]);
});

test("a local time has a column for each offset, by the offset at the next tick", () => {
  expect(shown("2026-01-06T12:00:00Z")).toEqual([
    [540, 0, 30, 28, 1, 2],
    [330, 210, 20, 19, 1, 2],
    [120, 420, 5, 0, 0, 0],
  ]);
});

test("a column is filled by what ended on the day of the moment, before it", () => {
  expect(shown("2026-01-06T03:30:00Z").map((c) => c[3])).toEqual([28, 0, 0]);
  expect(shown("2026-01-05T23:45:00Z").map((c) => c[3])).toEqual([29, 0, 0]);
});
