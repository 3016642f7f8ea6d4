import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { onKey } from "../keys";
import type { List } from "../query";
import { Action, Problem } from "./basic";

export interface Column<T> {
  head: string;
  /** A track of the grid: "120px", "minmax(0, 2fr)". */
  width: string;
  cell: (row: T) => ComponentChildren;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  /** Where a row leads. */
  href?: (row: T) => string;
  /** The list that the rows come from: the table reads on when its end is near. */
  list?: List<T>;
  /** How many there are in all, if it is known. */
  total?: number | null;
  /** The selected rows; absent: rows cannot be selected. */
  selected?: Set<string>;
  onSelect?: (ids: Set<string>) => void;
  /** What a row says in one cell over all columns; undefined: it has its columns. */
  whole?: (row: T) => ComponentChildren | undefined;
  empty?: ComponentChildren;
  rowHeight?: number;
}

/** A table of any length: it draws only the rows that can be seen. Keys: j k, x selects, Enter opens. */
export function Table<T>(props: Props<T>) {
  const { columns, rows, id, href, list, selected, onSelect } = props;
  const box = useRef<HTMLDivElement>(null);
  const [, draw] = useState(0);
  const [at, setAt] = useState(-1);
  const current = useRef(at); // a key that follows at once must see the row that the key before it chose
  const { route } = useLocation();
  const narrow = useNarrow();
  const height = props.rowHeight ?? 37;
  const [virtual] = useState(
    () =>
      new Virtualizer<HTMLDivElement, HTMLDivElement>({
        count: 0,
        getScrollElement: () => box.current,
        estimateSize: () => height,
        scrollToFn: elementScroll,
        observeElementRect,
        observeElementOffset,
        onChange: () => draw((n) => n + 1),
      }),
  );
  virtual.setOptions({ ...virtual.options, count: rows.length, estimateSize: () => height, overscan: 12, getItemKey: (i) => (rows[i] ? id(rows[i]) : i) });
  useEffect(() => virtual._didMount(), [virtual]);
  useLayoutEffect(() => virtual._willUpdate());
  const drawn = narrow ? rows.slice(0, 2000).map((_, index) => ({ index, start: 0, key: index })) : virtual.getVirtualItems();
  const lastDrawn = drawn.at(-1)?.index ?? -1;
  const more = list?.hasNextPage && !list.isFetching && !list.error;
  useEffect(() => {
    if (more && !narrow && lastDrawn >= rows.length - 20) list?.fetchNextPage();
  }, [more, lastDrawn, rows.length, list, narrow]);

  const toggle = (row: T) => {
    const next = new Set(selected);
    if (!next.delete(id(row))) next.add(id(row));
    onSelect?.(next);
  };
  useLayoutEffect(() =>
    onKey((key) => {
      const step = key === "j" ? 1 : key === "k" ? -1 : 0;
      const row = rows[current.current];
      if (step) {
        current.current = Math.max(0, Math.min(rows.length - 1, current.current + step));
        setAt(current.current);
        virtual.scrollToIndex(current.current);
      } else if (key === "x" && row && onSelect) toggle(row);
      else if (key === "Enter" && row && href) route(href(row));
      else return false;
      return true;
    }),
  );
  if (rows.length === 0 && list?.isPending && !list.error)
    return (
      <p class="skeleton" role="status">
        Reading…
      </p>
    );
  if (rows.length === 0 && !list?.error) return <>{props.empty}</>;
  const tracks = (onSelect ? "28px " : "") + columns.map((c) => c.width).join(" ");
  const style = { gridTemplateColumns: tracks };
  return (
    <>
      <Problem error={list?.error} retry={() => list?.refetch()} />
      <div class="rows" ref={box} role="table" aria-label={props.label} aria-rowcount={props.total ?? (list?.hasNextPage ? -1 : rows.length + 1)} tabIndex={0}>
        <div role="row" class="head" style={style} aria-rowindex={1}>
          {onSelect && (
            <span role="columnheader">
              <span class="hidden">selected</span>
            </span>
          )}
          {columns.map((c) => (
            <span role="columnheader" key={c.head}>
              {c.head}
            </span>
          ))}
        </div>
        <div class="space" role="rowgroup" style={{ height: `${virtual.getTotalSize()}px` }}>
          {drawn.map((v) => {
            const row = rows[v.index];
            if (!row) return null;
            const name = id(row);
            const on = selected?.has(name) ?? false;
            const whole = props.whole?.(row);
            return (
              <div
                role="row"
                key={name}
                aria-rowindex={v.index + 2}
                class={`${v.index === at ? "at" : ""} ${whole ? "whole" : ""}`}
                aria-selected={onSelect ? on : undefined}
                style={{ ...style, height: `${height}px`, transform: `translateY(${v.start}px)` }}
              >
                {onSelect && (
                  <span role="cell">
                    <input type="checkbox" aria-label={`select ${name}`} checked={on} onChange={() => toggle(row)} />
                  </span>
                )}
                {whole && (
                  <span role="cell" aria-colspan={columns.length}>
                    {whole}
                  </span>
                )}
                {!whole &&
                  columns.map((c) => (
                    <span role="cell" key={c.head}>
                      {c.cell(row)}
                    </span>
                  ))}
              </div>
            );
          })}
        </div>
      </div>
      <div class="rows-foot">
        <span class="num" role="status">
          {(list?.rows ?? rows).length.toLocaleString("en")}
          {props.total ? ` of ${props.total.toLocaleString("en")}` : list?.hasNextPage ? " of more" : ""} loaded{list?.isFetching ? ", reading…" : ""}
        </span>
        {list?.hasNextPage && (
          <Action kind="quiet" onClick={() => list.fetchNextPage()}>
            Read more
          </Action>
        )}
      </div>
    </>
  );
}

/** Whether the window is as narrow as a phone. */
export function useNarrow(): boolean {
  const [query] = useState(() => matchMedia("(max-width: 639px)"));
  const [is, set] = useState(query.matches);
  useEffect(() => {
    const on = () => set(query.matches);
    query.addEventListener("change", on);
    return () => query.removeEventListener("change", on);
  }, [query]);
  return is;
}
