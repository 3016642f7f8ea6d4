import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { read } from "./call";
import { setShortcuts, shortcuts } from "./keys";
import { Name } from "./parts/basic";
import { Dialog } from "./parts/dialog";
import { useQuery } from "./query";
import { rail, routes } from "./routes";
import { refused, self } from "./session";
import { link, scheduleLink } from "./url";

/** What lies above the page. */
export const opened = signal<"" | "palette" | "help">("");

interface Found {
  text: string;
  what: string;
  href: string;
}

/** Finds what a text names: an object by its id, a schedule by workflow/key, and pages, workflows, endpoints, calendars and keys by their beginning. */
export function Palette() {
  const ref = useRef<HTMLDialogElement>(null);
  const [text, type] = useState("");
  const [at, move] = useState(0);
  const { route } = useLocation();
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  const found = useFound(text.trim());
  const go = (f?: Found) => {
    if (!f) return;
    ref.current?.close();
    route(f.href);
  };
  const keys = (e: KeyboardEvent) => {
    const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    if (step) move((at + step + found.length) % Math.max(1, found.length));
    else if (e.key === "Enter") go(found[at]);
    else return;
    e.preventDefault();
  };
  return (
    <dialog ref={ref} class="palette" aria-label="Search or go to" onClose={() => (opened.value = "")} {...({ closedby: "any" } as object)}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found[at] ? `found-${at}` : undefined}
        aria-label="Search or go to"
        placeholder="a key, workflow/key, an id, a page"
        value={text}
        onInput={(e) => {
          type(e.currentTarget.value);
          move(0);
        }}
        onKeyDown={keys}
        spellcheck={false}
        autocomplete="off"
      />
      <ul id="found" role="listbox" aria-label="Found">
        {found.map((f, i) => (
          <li key={f.href + f.text} id={`found-${i}`} role="option" aria-selected={i === at} tabIndex={-1} onClick={() => go(f)} onMouseEnter={() => move(i)}>
            <Name>{f.text}</Name>
            <span class="dim nowrap">{f.what}</span>
          </li>
        ))}
      </ul>
    </dialog>
  );
}

const ids: [RegExp, (id: string) => Found][] = [
  [/^tick_\w+$/, (id) => ({ text: id, what: "tick", href: link("ticks", id) })],
  [/^op_\w+$/, (id) => ({ text: id, what: "operation", href: link("operations", id) })],
  [/^[A-Z2-7]{26}$/, (id) => ({ text: id, what: "request: its changes", href: `${link("audit")}?request=${id}` })],
];

function useFound(text: string): Found[] {
  const [asked, ask] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => ask(text), 120);
    return () => clearTimeout(timer);
  }, [text]);
  const may = !refused("schedules:read") && Boolean(self.value?.tenant);
  const named = useQuery({
    key: ["palette"],
    fn: (signal) =>
      Promise.all([read("/v1/workflows", { query: { limit: 200 }, signal }), read("/v1/endpoints", { query: { limit: 200 }, signal }), read("/v1/calendars", { query: { limit: 100 }, signal })]),
    on: may,
  });
  const keys = useQuery({
    key: ["palette", asked],
    fn: async (signal): Promise<Found[]> => {
      if (/^sch_\w+$/.test(asked)) {
        const s = await read("/v1/schedules/{id}", { path: { id: asked }, signal });
        return [{ text: `${s.workflow}/${s.key}`, what: "schedule", href: scheduleLink(s.workflow, s.key) }];
      }
      const page = await read("/v1/schedules", { query: { key_prefix: asked, limit: 8, fields: "summary" }, signal });
      return page.items.map((s) => ({ text: `${s.workflow}/${s.key}`, what: "schedule", href: scheduleLink(s.workflow, s.key) }));
    },
    on: may && asked.length > 0 && !/^(tick|op)_/.test(asked),
    keep: true,
  });
  const low = text.toLowerCase();
  const slash = text.indexOf("/");
  const [workflows, endpoints, calendars] = named.data ?? [];
  const platform = self.value?.tenant === null;
  return [
    ...ids.filter(([of]) => of.test(text)).map(([, make]) => make(text)),
    ...(slash > 0 && slash < text.length - 1 ? [{ text, what: "schedule", href: scheduleLink(text.slice(0, slash), text.slice(slash + 1)) }] : []),
    ...rail
      .filter((r) => Boolean(r.rail?.platform) === platform && r.rail?.text.toLowerCase().includes(low))
      .map((r) => ({ text: r.rail?.text ?? "", what: "page", href: link(...r.path.split("/").filter(Boolean)) + (r.path === "/" ? "/" : "") })),
    ...(low ? (workflows?.items ?? []).filter((w) => w.name.toLowerCase().startsWith(low)).map((w) => ({ text: w.name, what: "workflow", href: link("workflows", w.name) })) : []),
    ...(low ? (endpoints?.items ?? []).filter((e) => e.name.toLowerCase().startsWith(low)).map((e) => ({ text: e.name, what: "endpoint", href: link("endpoints", e.name) })) : []),
    ...(low ? (calendars?.items ?? []).filter((c) => c.name.toLowerCase().startsWith(low)).map((c) => ({ text: c.name, what: "calendar", href: link("calendars", c.name) })) : []),
    ...(text ? (keys.data ?? []) : []),
    ...(text && may ? [{ text, what: "subject", href: link("subjects", text) }] : []),
  ].slice(0, 20);
}

/** The keys, and the switch for those who do not want single keys. */
export function Help() {
  const go = routes.filter((r) => r.key && Boolean(r.rail?.platform) === (self.value?.tenant === null));
  const all: [string, string][] = [
    ["Ctrl K", "search or go to; also /"],
    ["j k", "down and up in a table"],
    ["x", "select the row"],
    ["Enter", "open the row"],
    ["z", "change the clock: schedule's, mine, UTC"],
    ["l", "live or paused"],
    ["?", "this help"],
    ...go.map((r) => [`g ${r.key}`, r.title] as [string, string]),
  ];
  return (
    <Dialog title="Keys" onClose={() => (opened.value = "")}>
      <dl class="keys">
        {all.map(([k, what]) => (
          <>
            <dt key={k}>
              {k.split(" ").map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
      <label class="check">
        <input type="checkbox" checked={shortcuts.value} onChange={(e) => setShortcuts(e.currentTarget.checked)} />
        Single keys are shortcuts
      </label>
    </Dialog>
  );
}
