import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import type { Ready } from "./server";

/** Names that would break a page that trusts them: markup, marks of direction, an encoded slash, a slash. */
export const hostile = ["<img src=x onerror=alert(1)>", "user\u202Etxt.exe", "a%2Fb/c", "team/42/morning"];

/** A payload whose number JavaScript cannot hold, with markup in it. */
export const payload = `{"amount": 123456789012345678901234567890, "exact": 1.10, "html": "<script>alert(1)</script>"}`;

/** Stores what the pages show: endpoints that answer and that fail, workflows, schedules, subjects, a calendar. */
export async function seed(ready: Ready): Promise<void> {
  const api = new Api(ready);
  const port = await endpoint();
  for (const [name, path] of [
    ["mailer", "ok"],
    ["billing-hook", "fail"],
  ]) {
    await api.put(`/v1/endpoints/${name}`, { url: `http://127.0.0.1:${port}/${path}`, batch: 1 });
  }
  await api.put("/v1/workflows/daily-digest", { endpoint: "mailer" });
  await api.put("/v1/workflows/invoices", { endpoint: "billing-hook", defaults: { delivery: { max_attempts: 1 } } });
  await api.put("/v1/workflows/reminders", { endpoint: "mailer" });
  await api.put("/v1/calendars/us-holidays", { dates: ["2026-11-26", "2026-12-25", "2027-01-01"] });
  const zones = ["America/New_York", "America/Vancouver", "Europe/Berlin", "Asia/Tokyo", "Pacific/Auckland", "Australia/Lord_Howe", "Asia/Kolkata"];
  for (let i = 0; i < 60; i++) {
    const zone = zones[i % zones.length];
    await api.put(`/v1/workflows/daily-digest/schedules/user_${i + 100}`, {
      spec: { timezone: zone, cron: [i % 3 ? "0 8 * * 1-5" : "30 2 * * *"], exclude: i % 2 ? { named: ["us-holidays"] } : undefined },
      labels: { plan: i % 4 ? "free" : "pro" },
      payload: { template: "digest", user: `user_${i + 100}` },
    });
  }
  // Its quiet hours begin in six hours, so that its reminders fire whenever the tests run.
  const now = Number(new Intl.DateTimeFormat("en-US", { timeZone: "America/New_York", hour: "2-digit", hourCycle: "h23" }).format(new Date()));
  const clock = (hour: number) => `${String(hour % 24).padStart(2, "0")}:00`;
  await api.put("/v1/subjects/user_123", { timezone: "America/New_York", quiet_hours: { from: clock(now + 6), to: clock(now + 12), then: "defer" } });
  await api.put("/v1/workflows/reminders/schedules/user_123%2Fwater", {
    subject: "user_123",
    spec: { timezone: "@subject", intervals: [{ every: "1m", mode: "fixed_rate", first: "now" }] },
    policy: { overlap: "allow_all" }, // its first tick comes although the one triggered below may still run
    payload: { say: "drink" },
    note: "Asked for by support.",
  });
  await api.put("/v1/workflows/invoices/schedules/acme", { spec: { intervals: [{ every: "20s", mode: "fixed_rate", first: "now" }] }, labels: { plan: "pro" } });
  for (const key of hostile) {
    await api.putText(
      `/v1/workflows/reminders/schedules/${encodeURIComponent(key)}`,
      `{"spec": {"timezone": "America/Vancouver", "cron": ["0 9 * * *"]}, "labels": {"team": "<i>y"}, "note": "<b>note</b>", "payload": ${payload}}`,
    );
  }
  await api.post("/v1/workflows/daily-digest/schedules/user_103/pause", { note: "On holiday until Monday." });
  for (const path of ["daily-digest/schedules/user_101", "reminders/schedules/user_123%2Fwater"]) await api.post(`/v1/workflows/${path}/trigger`, {});
}

/** Calls the API with the token of a tenant. An answer that is not 2xx throws. */
export class Api {
  constructor(readonly ready: { url: string; token: string }) {}

  get = (path: string) => this.send("GET", path);
  delete = (path: string) => this.send("DELETE", path);
  put = (path: string, body: unknown) => this.send("PUT", path, JSON.stringify(body));
  putText = (path: string, body: string) => this.send("PUT", path, body);
  patch = (path: string, body: unknown) => this.send("PATCH", path, JSON.stringify(body));
  post = (path: string, body: unknown) => this.send("POST", path, JSON.stringify(body));

  async send(method: string, path: string, body?: string): Promise<unknown> {
    const answer = await fetch(this.ready.url + path, { method, body, headers: { Authorization: `Bearer ${this.ready.token}`, "Content-Type": "application/json" } });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }
}

/** An endpoint on this machine: /ok answers 200, /fail answers 500 with markup. */
export function endpoint(): Promise<number> {
  return serve((request, answer) => {
    request.resume().on("end", () => {
      answer.writeHead(request.url === "/fail" ? 500 : 200, { "Content-Type": "text/html" }).end("<script>alert('from the endpoint')</script>");
    });
  });
}

/** Listens on a free port of this machine until the process ends. */
export function serve(by: RequestListener): Promise<number> {
  const server = createServer(by);
  return new Promise((done) => {
    server.listen(0, "127.0.0.1", () => {
      server.unref();
      done((server.address() as AddressInfo).port);
    });
  });
}
