import { InfiniteQueryObserver, type InfiniteQueryObserverResult, QueryClient, QueryObserver, type QueryObserverResult } from "@tanstack/query-core";
import { useEffect, useState } from "preact/hooks";
import { Problem } from "./call";
import { following, live } from "./live";

/** The answers that the pages have read. */
export const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      gcTime: 60_000,
      refetchOnWindowFocus: false,
      refetchOnReconnect: () => live.peek(),
      networkMode: "always",
      retry: (n, error) => n < 3 && error instanceof Problem && (error.status === 0 || error.status === 429 || error.status === 503),
      retryDelay: (n, error) => Math.max(1000 * 2 ** n, error instanceof Problem ? error.retryAfter * 1000 : 0),
    },
  },
});

/** How often a page reads again while it is live and visible, in ms. */
export const POLL = 5000;

export interface Asked<T> {
  key: readonly unknown[];
  fn: (signal: AbortSignal) => Promise<T>;
  /** In ms; absent: it is not read again by itself. */
  every?: number;
  /** For a form: it is read anew when the form opens, and not again while the form is open. */
  once?: boolean;
  /** false: it is not read yet. */
  on?: boolean;
  /** Show the answer for the key before until the new one is here. */
  keep?: boolean;
}

let readers = 0;

/** Reads an answer, and again in intervals while the page is live. */
export function useQuery<T>(asked: Asked<T>): QueryObserverResult<T, Error> {
  const [reader] = useState(() => ++readers);
  const options = {
    queryKey: asked.once ? [...asked.key, reader] : asked.key,
    queryFn: ({ signal }: { signal: AbortSignal }) => asked.fn(signal),
    ...(asked.once ? { staleTime: "static" as const } : {}),
    refetchInterval: asked.every && following.value ? asked.every : (false as const),
    enabled: asked.on ?? true,
    placeholderData: asked.keep ? (before: T | undefined) => before : undefined,
  };
  const [observer] = useState(() => new QueryObserver<T, Error, T, T, readonly unknown[]>(client, options as never));
  const [, draw] = useState(0);
  observer.setOptions(options as never);
  useEffect(() => observer.subscribe(() => draw((n) => n + 1)), [observer]);
  return observer.getOptimisticResult(client.defaultQueryOptions(options as never) as never) as QueryObserverResult<T, Error>;
}

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

export interface AskedList<T> {
  key: readonly unknown[];
  fn: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>;
  on?: boolean;
  /** Pages that are kept. */
  most?: number;
}

export type List<T> = InfiniteQueryObserverResult<{ pages: Page<T>[] }, Error> & { rows: T[] };

/** Reads a list page by page. */
export function useList<T>(asked: AskedList<T>): List<T> {
  const options = {
    queryKey: asked.key,
    queryFn: ({ pageParam, signal }: { pageParam: string | undefined; signal: AbortSignal }) => asked.fn(pageParam, signal),
    initialPageParam: undefined,
    getNextPageParam: (last: Page<T>) => last.next_cursor ?? undefined,
    enabled: asked.on ?? true,
    maxPages: asked.most ?? 50,
    placeholderData: (before: unknown) => before,
  };
  const [observer] = useState(() => new InfiniteQueryObserver(client, options as never));
  const [, draw] = useState(0);
  observer.setOptions(options as never);
  useEffect(() => observer.subscribe(() => draw((n) => n + 1)), [observer]);
  const result = observer.getOptimisticResult(client.defaultQueryOptions(options as never) as never) as unknown as List<T>;
  return Object.assign(Object.create(result), { rows: (result.data?.pages ?? []).flatMap((p) => p.items) }, result);
}

/** Reads everything again whose key begins so. Without a key: everything. */
export const refresh = (key?: readonly unknown[]) => client.invalidateQueries(key ? { queryKey: key } : undefined);

/** Returns a value as it was when it last stayed the same for some milliseconds. */
export function useResting<T>(value: T, ms: number): T {
  const [rested, rest] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => rest(value), ms);
    return () => clearTimeout(timer);
  }, [JSON.stringify(value)]);
  return rested;
}
