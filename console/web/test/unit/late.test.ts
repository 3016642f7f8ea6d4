import { expect, test } from "vitest";
import { lateness } from "../../src/pages/workflows/late";

const bucket = (at: string, histogram: (number | null)[][]) => ({ at, lateness_ms: { p50: null, p99: null, histogram } }) as never;

test("minutes are added up by five, and an empty span between has its column", () => {
  const got = lateness([
    bucket("2026-11-24T10:04:00Z", [
      [5, 3],
      [40, 1],
    ]),
    bucket("2026-11-24T10:00:00Z", [[5, 2]]),
    bucket("2026-11-24T10:11:00Z", [
      [10, 7],
      [null, 1],
    ]),
  ]);
  expect(got.bounds).toEqual([null, 40, 10, 5]);
  expect(got.columns).toEqual([
    { at: "2026-11-24T10:00:00.000Z", counts: [0, 1, 0, 5] },
    { at: "2026-11-24T10:05:00.000Z", counts: [0, 0, 0, 0] },
    { at: "2026-11-24T10:10:00.000Z", counts: [1, 0, 7, 0] },
  ]);
});

test("without ticks there is neither row nor column", () => {
  expect(lateness([])).toEqual({ bounds: [], columns: [] });
});
