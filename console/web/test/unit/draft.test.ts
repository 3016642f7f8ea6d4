import { expect, test, vi } from "vitest";

vi.stubGlobal("document", { hidden: false, addEventListener() {}, documentElement: { dataset: {} } });
const { bodyOf, cronOf, draftOf, fieldAt, fresh, labelsOf, simpleOf } = await import("../../src/pages/editor/draft");

test("days and times become cron and back", () => {
  const simple = { days: [1, 2, 3, 5], times: ["08:00", "17:30"] };
  const cron = cronOf(simple);
  expect(cron).toEqual(["0 8 * * 1-3,5", "30 17 * * 1-3,5"]);
  expect(simpleOf({ timezone: "UTC", cron })).toEqual(simple);
  expect(simpleOf({ cron: "0 8 * * *" })).toEqual({ days: [0, 1, 2, 3, 4, 5, 6], times: ["08:00"] });
});

test("a spec that is more than days and times is not simple", () => {
  for (const spec of [{ cron: "*/5 * * * *" }, { cron: ["0 8 * * 1", "0 9 * * 2"] }, { intervals: [{ every: "5m" }] }, { cron: "0 8 * * 1", at: ["2026-12-24T18:00:00"] }, {}]) {
    expect(simpleOf(spec), JSON.stringify(spec)).toBe(null);
  }
});

test("the field under the caret is named", () => {
  expect(fieldAt("0 8 * * 1-5", 0)).toBe("minute");
  expect(fieldAt("0 8 * * 1-5", 9)).toBe("day of week");
  expect(fieldAt("0 8 * * 1\n30 0 8 * * 1", 11)).toBe("second");
  expect(fieldAt("0 8", 1)).toBe("");
});

test("a payload is sent as it was typed, and what is inherited is not sent", () => {
  const d = { ...fresh("UTC", { workflow: "w", key: "k" }), payload: '{"n":  1.10}' };
  expect(bodyOf(d)).toMatch(/,"payload":\{"n": {2}1\.10\}\}$/);
  const s = {
    workflow: "w",
    key: "k",
    subject: "k",
    spec: {},
    policy: { overlap: "skip", missed: "all" },
    delivery: { retention: { failed: "30d" } },
    inherited: ["/policy/overlap", "/delivery/retention/failed"],
    labels: { a: "b: c" },
    note: null,
    payload: null,
  };
  expect(draftOf(s as never)).toMatchObject({ subject: "", policy: { missed: "all" }, delivery: {}, labels: "a: b: c", payload: "" });
  expect(labelsOf("a: b: c\n\nplan:pro")).toEqual({ a: "b: c", plan: "pro" });
});
