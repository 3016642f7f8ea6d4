import type { Page } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import { errors, open, server, useBrowser } from "../browser";
import { type Api, serve } from "../fixture";
import { makeTenant } from "../tenant";
import { until } from "../until";

// A tenant whose every text attacks the reader, and pages of other sites that attack a signed-in browser.

/** Markup with a handler, a mark that turns the direction of what follows, an encoded slash and a real one. */
const evil = "<img data-attack src=x onerror=alert(1)> \u202Egpj.exe %2F../a/b &lt;i&gt;";
const shown = "<img data-attack src=x";

useBrowser();
let api: Api;
let port: number;
let tick: string;
let operation: string;

beforeAll(async () => {
  api = await makeTenant(server(), "umbrella");
  port = await serve((request, answer) => {
    if (request.method === "GET") answer.writeHead(200, { "Content-Type": "text/html" }).end(`<!doctype html><title>elsewhere</title>${decodeURIComponent(request.url?.slice(1) ?? "")}`);
    else request.resume().on("end", () => answer.writeHead(500, { "Content-Type": "text/html" }).end(evil));
  });
  await api.put("/v1/endpoints/hook", { url: `http://127.0.0.1:${port}/`, headers: { "X-Note": evil.replace("\u202E", "") } });
  await api.put("/v1/workflows/w", { endpoint: "hook", defaults: { delivery: { max_attempts: 1 } } });
  await api.put(`/v1/subjects/${encodeURIComponent(evil)}`, { timezone: "America/Vancouver", labels: { team: evil } });
  const at = `/v1/workflows/w/schedules/${encodeURIComponent(evil)}`;
  for (const note of ["first", evil]) {
    await api.put(at, { subject: evil, spec: { timezone: "@subject", cron: ["0 9 * * *"] }, labels: { team: evil }, note, payload: { [evil]: evil } });
  }
  await api.post(`${at}/trigger`, {});
  const asked = (await api.post("/v1/schedules/actions", { action: "pause", filter: { subject: evil }, note: evil })) as { operation: { id: string } };
  operation = asked.operation.id;
  await api.post("/v1/admin/api-keys", { name: evil, scopes: ["schedules:read"] });
  const failed = async () => ((await api.get("/v1/ticks?state=failed&limit=1")) as { items: { tick_id: string }[] }).items[0]?.tick_id;
  await until(async () => Boolean(await failed()), 30_000, "the tick failed");
  tick = await failed();
  await until(async () => ((await api.get(`/v1/operations/${operation}`)) as { state: string }).state === "succeeded", 30_000, "the pause ended");
  await api.post("/v1/admin/halt", { note: evil }); // it is in a band on each page
}, 60_000);

/** What a stored text did to the page: markup that became an element, or a mark of direction that turns the text behind it. */
const harm = (page: Page) =>
  page.evaluate(() => {
    const found = [...document.querySelectorAll("[data-attack]")].map((e) => `element: ${e.outerHTML}`);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      if (!node.textContent?.includes("\u202E")) continue;
      let box = node.parentElement as HTMLElement;
      while (box.parentElement && !/isolate|plaintext/.test(getComputedStyle(box).unicodeBidi)) box = box.parentElement;
      const behind = document.createRange();
      behind.setStartAfter(node);
      behind.setEnd(box, box.childNodes.length);
      const turned = behind.toString().trim();
      if (turned) found.push(`turned, behind a text in <${node.parentElement?.tagName}>: ${turned.slice(0, 80)}`);
    }
    return found;
  });

const key = encodeURIComponent(evil);
const pages: [string, string][] = [
  ["overview", "/"],
  ["schedules", "/schedules"],
  ["schedules found by it", `/schedules?key=${key}`],
  ["schedule", `/schedules/w/${key}`],
  ...["month", "history", "revisions", "explain", "payload"].map((tab): [string, string] => [tab, `/schedules/w/${key}?tab=${tab}`]),
  ["subjects", "/subjects"],
  ["subject", `/subjects/${key}`],
  ["ticks", "/ticks"],
  ["tick", "/ticks/TICK"],
  ["dead letters", "/dead-letters"],
  ["dead letters one by one", "/dead-letters?view=list"],
  ["endpoint", "/endpoints/hook"],
  ["workflow", "/workflows/w"],
  ["operations", "/operations"],
  ["operation", "/operations/OP"],
  ["audit", "/audit"],
  ["settings", "/settings"],
];

test.each(pages)("stored markup and marks of direction are harmless: %s", async (_, path) => {
  errors.length = 0;
  const page = await open(`/umbrella${path.replace("TICK", tick).replace("OP", operation)}`, { as: api.ready.token });
  page.on("dialog", (d) => {
    errors.push(`a script ran: ${d.message()}`);
    d.dismiss();
  });
  await page.getByText("Nothing fires.", { exact: true }).waitFor();
  await page.locator("#main").getByRole("heading", { level: 1 }).waitFor();
  await expect.poll(() => page.getByText("Reading…").count()).toBe(0);
  await page.getByText(shown).first().waitFor();
  expect(await harm(page)).toEqual([]);
  expect(errors).toEqual([]);
  await page.close();
});

test("dialogs and the palette show a hostile name as text", async () => {
  errors.length = 0;
  const page = await open(`/umbrella/subjects/${key}`, { as: api.ready.token });
  await page.getByRole("button", { name: "Erase" }).click();
  await page.getByRole("dialog").getByText(shown).first().waitFor();
  expect(await harm(page)).toEqual([]);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search or go to" }).fill(evil.slice(0, 12));
  await page.getByRole("option", { name: shown }).first().waitFor();
  expect(await harm(page)).toEqual([]);
  await page.goto("/console/umbrella/audit?action=schedule.put");
  await page
    .getByRole("button", { name: /^Show change/ })
    .first()
    .click();
  await page.locator("dialog").getByText(shown).first().waitFor();
  expect(await harm(page)).toEqual([]);
  expect(errors).toEqual([]);
  await page.close();
});

// Another site (localhost), and another port of this one, to which browsers send the cookies of this site too.
test.each(["localhost", "127.0.0.1"])("a page of http://%s cannot frame the console", async (host) => {
  const { url } = server();
  const page = await open("/demo/");
  await page.getByText("Needs attention").waitFor();
  await page.goto(`http://${host}:${port}/${encodeURIComponent(`<iframe src="${url}/console/demo/"></iframe>`)}`);
  await expect.poll(() => page.frames().length).toBe(2);
  await expect.poll(() => page.frames()[1].url()).toBe("chrome-error://chromewebdata/");
  expect(await page.frames()[1].getByText("Halt everything").count()).toBe(0);
  const shell = await fetch(`${url}/console/`, { headers: { Accept: "text/html" } });
  expect(shell.headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
  expect(shell.headers.get("x-frame-options")).toBe("DENY");
  await page.close();
});

test.each(["localhost", "127.0.0.1"])("a page of http://%s changes nothing with the cookie of the console", async (host) => {
  const { url } = server();
  const { key } = (await api.post("/v1/admin/api-keys", { name: "the attacker's own", scopes: ["schedules:read"] })) as { key: string };
  const page = await open("/demo/");
  await page.getByText("Needs attention").waitFor();
  const answers: number[] = [];
  await page.goto(`http://${host}:${port}/`);
  page.on("response", (r) => r.url().startsWith(url) && answers.push(r.status()));
  const outcomes = await page.evaluate(
    async ([url, key]) => {
      const tries: [string, RequestInit][] = [
        ["/v1/admin/halt", { method: "POST", mode: "no-cors" }],
        ["/v1/admin/halt", { method: "POST", headers: { "Carillon-Console": "1" } }],
        ["/v1/self", { headers: { "Carillon-Console": "1" } }],
        ["/v1/self", { mode: "no-cors" }],
        ["/console/session", { method: "POST", mode: "no-cors", body: JSON.stringify({ api_key: key }) }],
        ["/console/session", { method: "POST", mode: "cors", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ api_key: key }) }],
        ["/console/session", { method: "DELETE" }],
      ];
      const all = await Promise.all(
        tries.map(([path, how]) =>
          fetch(url + path, { ...how, credentials: "include" }).then(
            (a) => a.type,
            () => "refused",
          ),
        ),
      );
      return all.filter((type) => type !== "refused" && type !== "opaque");
    },
    [url, key],
  );
  expect(outcomes, "answers that the page could read").toEqual([]);
  await expect.poll(() => answers.length).toBeGreaterThanOrEqual(3);
  expect(answers.filter((status) => status < 400)).toEqual([]);
  await page.setContent(`<form method="post" enctype="text/plain" action="${url}/console/session"><input name='{"api_key":"${key}","x":"' value='"}'><button>Win a prize</button></form>`);
  await Promise.all([page.waitForURL(`${url}/**`), page.getByRole("button").click()]);
  await page.goto(`${url}/console/demo/`);
  await page.getByText("Needs attention").waitFor(); // still signed in, and in the same tenant
  expect(await page.getByText("Nothing fires.", { exact: true }).count()).toBe(0);
  await page.close();
});

test("a link of another page with a code of its own does not change who is signed in", async () => {
  const { url } = server();
  const made = (await api.post("/console/code", {})) as { path: string };
  const page = await open("/demo/");
  await page.getByText("Needs attention").waitFor();
  await page.goto(`http://localhost:${port}/${encodeURIComponent(`<a href="${url}${made.path}">Win a prize</a>`)}`);
  await page.getByRole("link").click();
  await page.waitForURL(`${url}/console/**`);
  await page.goto(`${url}/console/demo/`);
  await page.getByText("Needs attention").waitFor();
  await page.close();
});

test("a link of one tenant, opened in the session of another, says so and reads nothing", async () => {
  const page = await open("/umbrella/", { as: api.ready.token });
  const asked: string[] = [];
  page.on("request", (r) => asked.push(new URL(r.url()).pathname));
  await page.goto("/console/demo/schedules/daily-digest/user_101");
  await page.getByText("This page belongs to demo, and you are in umbrella").waitFor();
  expect(asked.filter((path) => path.includes("user_101") && path.startsWith("/v1/"))).toEqual([]);
  expect(await page.getByRole("heading", { name: "user_101" }).count()).toBe(0);
  await page.close();
});
