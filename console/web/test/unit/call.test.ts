import { describe, expect, test, vi } from "vitest";

vi.stubGlobal("document", { hidden: false, addEventListener() {}, documentElement: { dataset: {} } });

const { address, call, Problem, stream, Text } = await import("../../src/call");
const { differences } = await import("../../src/parts/json");

test("a slash, a percent sign and a dot of a key stay in its segment", () => {
  expect(address("/v1/workflows/{workflow}/schedules/{key}", { workflow: "w", key: "a/b%2F<c>" })).toBe("/v1/workflows/w/schedules/a%2Fb%252F%3Cc%3E");
});

test("empty members of a query are left out, and a list is repeated", () => {
  expect(address("/v1/ticks", {}, { state: ["failed", "skipped"], key: "", limit: 0 })).toBe("/v1/ticks?state=failed&state=skipped&limit=0");
});

test("differences are told by JSON pointer", () => {
  expect(differences({ a: { "b/c": 1 }, same: [1] }, { a: { "b/c": 2 }, same: [1], more: true })).toEqual([
    { pointer: "/a/b~1c", before: 1, after: 2 },
    { pointer: "/more", before: undefined, after: true },
  ]);
});

describe("call", () => {
  const answers = (answer: Response) => {
    const asked = vi.fn(async () => answer);
    vi.stubGlobal("fetch", asked);
    return asked;
  };

  test("sends what the user typed unchanged, with the key of the intent", async () => {
    const asked = answers(Response.json({ id: "sch_1" }, { headers: { ETag: '"3"', "X-Request-Id": "ABC" } }));
    const got = await call("put", "/v1/workflows/{workflow}/schedules/{key}", { path: { workflow: "w", key: "k" }, body: new Text('{"payload":  1.10}'), ifMatch: '"2"', intent: "i" });
    expect(got).toMatchObject({ etag: '"3"', requestId: "ABC", replayed: false });
    const [, how] = asked.mock.calls[0] as unknown as [string, RequestInit & { headers: Record<string, string> }];
    expect(how.body).toBe('{"payload":  1.10}');
    expect(how.headers).toMatchObject({ "If-Match": '"2"', "Idempotency-Key": "i", "Carillon-Console": "1" });
  });

  test("tells the code, the fields, the request and how long to wait", async () => {
    answers(Response.json({ code: "rate_limited", detail: "slow down", errors: [{ pointer: "/a", code: "x", detail: "y" }] }, { status: 429, headers: { "Retry-After": "3", "X-Request-Id": "ABC" } }));
    const problem = await call("get", "/v1/self").catch((e) => e);
    expect(problem).toBeInstanceOf(Problem);
    expect(problem).toMatchObject({ status: 429, code: "rate_limited", requestId: "ABC", retryAfter: 3, fields: [{ pointer: "/a" }] });
  });
});

test("a stream is read in blocks, wherever the network cuts it", async () => {
  const ended = new AbortController();
  const parts = ["id: 1\nevent: ti", 'ck\ndata: {"n":1}\n\n: still here\n\nid: 2\nevent: second\ndata: {"n"', ":2}\n\n"];
  const body = new ReadableStream({
    start(c) {
      for (const p of parts) c.enqueue(new TextEncoder().encode(p));
    },
  });
  vi.stubGlobal("fetch", async () => new Response(body));
  const heard: unknown[] = [];
  const done = stream("/v1/ticks/tail", (e) => heard.push(e), ended.signal);
  await vi.waitFor(() => expect(heard.length).toBe(2));
  ended.abort();
  await body.cancel().catch(() => undefined);
  expect(heard).toEqual([
    { event: "tick", data: { n: 1 }, id: "1" },
    { event: "second", data: { n: 2 }, id: "2" },
  ]);
  void done;
});
