import type { paths } from "./api.gen";
import { heard, waits } from "./live";

type Methods = "get" | "put" | "post" | "patch" | "delete";
type Operation<P extends keyof paths, M extends Methods> = NonNullable<paths[P][M]>;
type Content<R> = R extends { content: { "application/json": infer T } } ? T : never;
type Answers<O> = O extends { responses: infer R } ? { [S in keyof R]: S extends 200 | 201 | 202 ? Content<R[S]> : never }[keyof R] : never;
type Of<O, In extends string> = O extends { parameters: { [K in In]?: infer Q } } ? Q : never;
type BodyOf<O> = O extends { requestBody?: { content: infer C } } ? C[keyof C] : never;

/** What the operation of a path answers when it succeeds. */
export type Answer<P extends keyof paths, M extends Methods = "get"> = Answers<Operation<P, M>>;

export interface Options<O> {
  path?: Of<O, "path">;
  query?: Of<O, "query">;
  body?: BodyOf<O> | Text;
  ifMatch?: string;
  ifNoneMatch?: string;
  /** Names what the user wants: a retry of the same intent has the same key, so that nothing happens twice. */
  intent?: string;
  signal?: AbortSignal;
}

/** A body as the user typed it. It is sent unchanged. */
export class Text {
  constructor(readonly text: string) {}
}

export interface Got<T> {
  value: T;
  etag: string;
  status: number;
  requestId: string;
  replayed: boolean;
}

export interface Field {
  pointer: string;
  code: string;
  detail: string;
}

/** A refusal of the server, or that it could not be reached (status 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly requestId = "",
    readonly fields: Field[] = [],
    readonly retryAfter = 0,
    readonly more: Record<string, unknown> = {},
  ) {
    super(detail);
  }
}

/** Makes the key of an intent. */
export const intent = () => crypto.randomUUID();

/** Fills a path and its query. A slash in a parameter is encoded, and stays so. */
export function address(path: string, params: Record<string, unknown> = {}, query: Record<string, unknown> = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(String(params[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null && one !== "") search.append(name, String(one));
  }
  const text = search.toString();
  return text ? `${filled}?${text}` : filled;
}

/** Parses JSON, and keeps each number that JavaScript cannot hold as it was written. */
export function parse(text: string): unknown {
  const exact = JSON as unknown as { rawJSON?: (text: string) => unknown };
  const keep = (_: string, value: unknown, context?: { source?: string }) =>
    typeof value === "number" && context?.source && exact.rawJSON && String(value) !== context.source ? exact.rawJSON(context.source) : value;
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

/** Sends a request of the API with the session's cookie. Throws a Problem unless it succeeds. */
export async function call<P extends keyof paths, M extends Methods>(method: M, path: P, options: Options<Operation<P, M>> = {}): Promise<Got<Answer<P, M>>> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.ifMatch) headers["If-Match"] = options.ifMatch;
  if (options.ifNoneMatch) headers["If-None-Match"] = options.ifNoneMatch;
  if (options.intent) headers["Idempotency-Key"] = options.intent;
  const body = options.body === undefined ? undefined : options.body instanceof Text ? options.body.text : JSON.stringify(options.body);
  const answer = await send(address(path, options.path as never, options.query as never), method.toUpperCase(), headers, body, options.signal);
  const text = await answer.text();
  return {
    value: (text ? parse(text) : undefined) as Answer<P, M>,
    etag: answer.headers.get("ETag") ?? "",
    status: answer.status,
    requestId: answer.headers.get("X-Request-Id") ?? "",
    replayed: answer.headers.get("Idempotency-Replayed") === "true",
  };
}

/** Reads with call, and returns only the value. */
export async function read<P extends keyof paths>(path: P, options: Options<Operation<P, "get">> = {}): Promise<Answer<P, "get">> {
  return (await call("get", path, options)).value;
}

/** Sends a request to this server. Throws a Problem unless the answer is a success. */
export async function send(url: string, method = "GET", headers: Record<string, string> = {}, body?: BodyInit, signal?: AbortSignal): Promise<Response> {
  const began = Date.now();
  let answer: Response;
  try {
    answer = await fetch(url, { method, body, signal, headers: { ...headers, "Carillon-Console": "1" }, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The server does not answer. Check your network; the page tries again.");
  }
  heard(answer.headers.get("Date"), began);
  if (answer.ok) return answer;
  throw await refusal(answer);
}

async function refusal(answer: Response): Promise<Problem> {
  const id = answer.headers.get("X-Request-Id") ?? "";
  const retry = Number(answer.headers.get("Retry-After") ?? 0);
  const doc = await answer.json().catch(() => ({}));
  const problem = new Problem(answer.status, doc.code ?? "unknown", doc.detail ?? `The server answered ${answer.status}.`, id, doc.errors ?? [], retry, doc);
  waits(problem);
  return problem;
}

export interface StreamEvent {
  event: string;
  data: unknown;
  id: string;
}

/** Reads an event stream until the signal aborts. After a cut it goes on behind the last event. */
export async function stream(url: string, on: (e: StreamEvent) => void, signal: AbortSignal): Promise<void> {
  let last = "";
  for (let pause = 1; !signal.aborted; pause = Math.min(30, pause * 2)) {
    try {
      const answer = await send(url, "GET", { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) }, undefined, signal);
      let rest = "";
      const reader = (answer.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream() as never).getReader() as ReadableStreamDefaultReader<string>;
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        pause = 1;
        const blocks = (rest + part.value).split(/\r?\n\r?\n/);
        rest = blocks.pop() ?? "";
        for (const block of blocks) last = tell(block, last, on);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
      if (error instanceof Problem && error.retryAfter > pause) pause = error.retryAfter;
    }
    await new Promise((done) => setTimeout(done, pause * 1000));
  }
}

/** Tells of one block of an event stream. Returns the id to go on behind. */
function tell(block: string, last: string, on: (e: StreamEvent) => void): string {
  let event = "message";
  let id = last;
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("event:")) event = value;
    if (line.startsWith("data:")) data.push(value);
    if (line.startsWith("id:")) id = value;
  }
  if (data.length) on({ event, data: parse(data.join("\n")), id });
  return id;
}
