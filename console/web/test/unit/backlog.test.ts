import { expect, test } from "vitest";
import { longest, queue, spread } from "../../src/pages/forecast/backlog";

test("a herd above the quota waits until it is drained", () => {
  expect(queue([120, 0, 0, 30], 1)).toEqual([60, 0, 0, 0]);
  expect(longest(queue([120, 0, 0], 1), 1)).toBe(60_000);
});

test("jitter spreads a herd, and loses no tick before the end", () => {
  expect(spread([90, 0, 0, 0], 3)).toEqual([30, 30, 30, 0]);
  expect(spread([5, 7], 0)).toEqual([5, 7]);
});
