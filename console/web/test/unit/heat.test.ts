import { expect, test } from "vitest";
import { shade } from "../../src/charts/shade";
import { heat } from "../../src/pages/forecast/heat";

test("each hour of a clock has its largest minute, and hours outside are empty", () => {
  const minutes = [
    { at: "2026-11-24T00:10:00Z", ticks: 3 },
    { at: "2026-11-24T00:20:00Z", ticks: 9 },
    { at: "2026-11-24T19:30:00Z", ticks: 2 },
  ];
  const days = heat(minutes, "2026-11-24T00:05:00Z", "2026-11-24T20:00:00Z", () => -330);
  expect(days.map((d) => d.date)).toEqual(["2026-11-23", "2026-11-24"]);
  expect(days[0].hours[17]).toBeNull();
  expect(days[0].hours[18]).toEqual({ at: "2026-11-24T00:20:00Z", ticks: 9 });
  expect(days[0].hours[19]).toEqual({ at: "", ticks: 0 });
  expect(days[1].hours[14]).toEqual({ at: "2026-11-24T19:30:00Z", ticks: 2 });
  expect(days[1].hours[15]).toBeNull();
});

test("only an hour without ticks has no shade, and the largest has the darkest", () => {
  expect([0, 1, 50, 100].map((n) => shade(n, 100))).toEqual([0, 1, 3, 6]);
});
