import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { call, intent, read } from "./call";
import { Icon } from "./icons";
import { onKey } from "./keys";
import { live, now, second, waiting } from "./live";
import { Help, opened, Palette } from "./palette";
import { Action, Menu, Name } from "./parts/basic";
import { Clock, ClockCard } from "./parts/clock";
import { Confirm } from "./parts/dialog";
import { refresh, useQuery } from "./query";
import { rail, routes } from "./routes";
import { home, refused, self, signOut } from "./session";
import { type Theme, theme } from "./theme";
import { chosen, clock, mine, needZones, show, zones } from "./time";
import { hide, said, toast, toasts } from "./toast";
import { link } from "./url";
import "./shell.css";

/** What is around each page: the rail, the top bar, the bands, the palette and the toasts. */
export function Shell({ children }: { children: ComponentChildren }) {
  useKeys();
  useEffect(needZones, []);
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <Rail />
      <div class="top-area">
        <Top />
        <HaltBand />
        <WaitBand />
      </div>
      <main class="content" id="main" tabIndex={-1}>
        <div class="page">{children}</div>
      </main>
      <ClockCard />
      {opened.value === "palette" && <Palette />}
      {opened.value === "help" && <Help />}
      <div class="toasts">
        {toasts.value.map((t) => (
          <div class="toast" key={t.id}>
            <span>
              {t.text} {t.href && <a href={t.href}>{t.link}</a>}
            </span>
            <Action kind="quiet icon" label="Close" onClick={() => hide(t.id)}>
              ×
            </Action>
          </div>
        ))}
      </div>
      <div class="hidden" role="status" aria-live="polite">
        {said.value}
      </div>
    </div>
  );
}

function Rail() {
  const { path } = useLocation();
  const platform = self.value?.tenant === null;
  const shown = rail.filter((r) => Boolean(r.rail?.platform) === platform);
  const here = (r: (typeof rail)[number]) => (r.path === "/" ? path === `/console/${home.value}` : path.startsWith(`/console/${home.value}${r.path}`));
  let group = "";
  return (
    <nav class="rail" aria-label="Pages">
      <a class="brand" href={`/console/${home.value}/`}>
        <Icon name="bell" />
        Carillon
      </a>
      {shown.map((r) => {
        const title = r.rail?.group && r.rail.group !== group ? <div class="group">{r.rail.group}</div> : null;
        group = r.rail?.group ?? group;
        return (
          <>
            {title}
            <a
              class="item"
              key={r.path}
              href={r.path === "/" ? `/console/${home.value}/` : link(...r.path.split("/").filter(Boolean))}
              aria-current={here(r) ? "page" : undefined}
              aria-keyshortcuts={r.key ? `g ${r.key}` : undefined}
            >
              <Icon name={r.rail?.icon ?? ""} />
              {r.rail?.text}
            </a>
          </>
        );
      })}
    </nav>
  );
}

function Top() {
  const s = self.value;
  const { route } = useLocation();
  return (
    <header class="top">
      <span class="tenant" title={`signed in as ${s?.actor}`}>
        <Name>{s?.tenant ?? "platform"}</Name>
      </span>
      <button type="button" class="button search" onClick={() => (opened.value = "palette")}>
        <Icon name="search" />
        <span class="words">Search or go to</span>
        <kbd>Ctrl K</kbd>
      </button>
      <ClockSwitch />
      <Action kind="quiet" label={live.value ? "Live: the page follows the server. Pause it" : "Paused: nothing changes. Go on"} keys="l" onClick={() => (live.value = !live.value)}>
        <Icon name={live.value ? "live" : "pause"} />
        <span class="live-word">{live.value ? "Live" : "Paused"}</span>
      </Action>
      <span class="server">
        <ServerClock />
      </span>
      <Menu label="You and this page" text={<Icon name="user" />} kind="quiet icon">
        <span class="dim break">
          {s?.actor}
          {refused("schedules:write") ? " · may only look" : ""}
        </span>
        {(["system", "light", "dark"] as Theme[]).map((t) => (
          <Action key={t} kind="quiet" onClick={() => (theme.value = t)}>
            {theme.value === t ? "✓ " : ""}
            {t === "system" ? "Theme of the system" : t === "light" ? "Light" : "Dark"}
          </Action>
        ))}
        <Action kind="quiet" onClick={() => (opened.value = "help")}>
          Keys and help
        </Action>
        <Action kind="quiet" href="/docs">
          Reference of the API
        </Action>
        <Action
          kind="quiet"
          onClick={() =>
            signOut()
              .then(() => route("/console/sign-in"))
              .catch((e) => toast(e.message))
          }
        >
          Sign out
        </Action>
      </Menu>
    </header>
  );
}

function ClockSwitch() {
  const known = ["schedule", "mine", "utc"];
  return (
    <select class="select" aria-label="Clock of the page" aria-keyshortcuts="z" value={clock.value} onChange={(e) => (clock.value = e.currentTarget.value)}>
      <option value="schedule">Schedule's clock</option>
      <option value="mine">Mine: {mine}</option>
      <option value="utc">UTC</option>
      {!known.includes(clock.value) && <option value={clock.value}>{clock.value}</option>}
      {(zones.value?.items ?? [])
        .filter((z) => z.timezone !== clock.value)
        .map((z) => (
          <option key={z.timezone} value={z.timezone}>
            {z.timezone}
          </option>
        ))}
    </select>
  );
}

function ServerClock() {
  const at = new Date(second.value * 1000).toISOString();
  return (
    <>
      {show(at, chosen(), { seconds: true, day: false }).text}
      {zones.value ? ` · tzdata ${zones.value.tzdata}` : ""}
    </>
  );
}

/** On every page while the tenant is halted. */
function HaltBand() {
  const [asking, ask] = useState(false);
  const tenant = self.value?.tenant;
  const overview = useQuery({ key: ["overview"], fn: (signal) => read("/v1/admin/overview", { signal }), every: 15_000, on: Boolean(tenant) && !refused("tenant:read") });
  const firing = overview.data?.firing;
  if (!firing?.halted_at) return null;
  return (
    <div class="band red" role="status">
      <strong>Nothing fires.</strong>
      <span>
        Halted since <Clock at={firing.halted_at} />
        {firing.note ? (
          <>
            : <Name>{firing.note}</Name>
          </>
        ) : null}
      </span>
      <Action scope="tenant:admin" onClick={() => ask(true)}>
        Continue
      </Action>
      {asking && (
        <Confirm
          title="Let everything fire again"
          verb="Continue"
          danger={false}
          onClose={() => ask(false)}
          onSend={() => call("post", "/v1/admin/continue", { intent: intent() } as never).then(() => refresh(["overview"]))}
        >
          <p>Schedules fire again from now. Each decides by its own policy what becomes of the times that passed.</p>
        </Confirm>
      )}
    </div>
  );
}

/** While the server asks us to wait. */
function WaitBand() {
  const w = waiting.value;
  const left = w ? Math.ceil((w.until - Math.max(now(), second.value * 1000)) / 1000) : 0;
  useEffect(() => {
    if (w && left <= 0) waiting.value = null;
  });
  if (!w || left <= 0) return null;
  return (
    <div class="band amber" role="status">
      <strong>The server asks to wait {left} s.</strong> <span>{w.detail}</span>
    </div>
  );
}

const circle = ["schedule", "mine", "utc"];

/** The keys that work on each page. */
function useKeys() {
  const { route } = useLocation();
  useEffect(() => {
    let g = 0;
    return onKey((key) => {
      if (Date.now() - g < 1500) {
        g = 0;
        const to = routes.find((r) => r.key === key && Boolean(r.rail?.platform) === (self.peek()?.tenant === null));
        if (!to) return false;
        route(to.path === "/" ? `/console/${home.peek()}/` : link(...to.path.split("/").filter(Boolean)));
      } else if (key === "g") g = Date.now();
      else if (key === "Ctrl-K" || key === "/") opened.value = "palette";
      else if (key === "?") opened.value = "help";
      else if (key === "l") live.value = !live.peek();
      else if (key === "z") clock.value = circle[(circle.indexOf(clock.peek()) + 1) % circle.length];
      else return false;
      return true;
    });
  }, [route]);
}
