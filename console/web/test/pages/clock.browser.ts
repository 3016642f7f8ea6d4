import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { open, server, useBrowser } from "../browser";
import { Api } from "../fixture";

// A browser whose clock is an hour ahead, and whose zone data is of 2025: there, the winter of Vancouver is still at UTC−8. Since November
// 2026 it is at UTC−7 all year. What such a browser computes is wrong, so each page must show what the server says.

useBrowser();

/** Makes the browser wrong: its clock, and what it knows of Vancouver, which is its own zone. */
function wrong() {
  const Right = Date;
  class Ahead extends Right {
    constructor(...given: []) {
      super(...(given.length ? given : ([Right.now() + 3_600_000] as unknown as [])));
    }
    static now = () => Right.now() + 3_600_000;
  }
  globalThis.Date = Ahead as DateConstructor;
  const Format = Intl.DateTimeFormat;
  const old = (locale?: string, options: Intl.DateTimeFormatOptions = {}) => {
    const vancouver = options.timeZone === undefined || options.timeZone === "America/Vancouver";
    const made = new Format(locale, vancouver ? { ...options, timeZone: "Etc/GMT+8" } : options);
    const resolved = made.resolvedOptions();
    if (vancouver) made.resolvedOptions = () => ({ ...resolved, timeZone: "America/Vancouver" });
    return made;
  };
  Intl.DateTimeFormat = new Proxy(Format, { construct: (_, [locale, options]) => old(locale, options), apply: (_, __, [locale, options]) => old(locale, options) });
}

const look = (path: string) => open(path, { zone: "Etc/GMT+8", first: wrong });

/** What the page's own scripts would compute without the server: that the browser is as wrong as it should be. */
const computed = (page: Page) =>
  page.evaluate(() => ({
    late: new Date("2026-12-01T15:00:00Z").getHours(),
    zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    hour: new Intl.DateTimeFormat("en", { timeZone: "America/Vancouver", hour: "2-digit", hourCycle: "h23" }).format(new Date("2026-12-01T15:00:00Z")),
    now: Date.now(),
  }));

/** The local time of Vancouver in a text such as "08:14:05", as seconds of the day. */
const seconds = (text: string | null) => {
  const [h, m, s] =
    /(\d\d):(\d\d)(?::(\d\d))?/
      .exec(text ?? "")
      ?.slice(1)
      .map((n) => Number(n ?? 0)) ?? [];
  return h * 3600 + m * 60 + s;
};

/** How far a shown time of day is from the real one in Vancouver, in seconds. */
const off = (text: string | null) => {
  const day = 86_400;
  const real = (Math.floor(Date.now() / 1000) - 7 * 3600) % day;
  const by = (((seconds(text) - real) % day) + day) % day;
  return Math.min(by, day - by);
};

test("a browser with a wrong clock and old zone data shows the coming ticks of Vancouver right, by every clock", async () => {
  const page = await look("/demo/schedules/daily-digest/user_101");
  const coming = page.locator("section", { has: page.getByRole("heading", { name: "Coming" }) }).locator("time");
  await coming.nth(4).waitFor();
  const browser = await computed(page);
  expect(browser).toMatchObject({ late: 7, zone: "America/Vancouver", hour: "07" });
  expect(browser.now - Date.now()).toBeGreaterThan(3_500_000);
  for (const [clock, shown] of [
    ["utc", /15:00 UTC/],
    ["mine", /08:00/],
    ["schedule", /08:00/], // the last, because the browser keeps the choice
  ] as const) {
    await page.getByLabel("Clock of the page").selectOption(clock);
    await expect.poll(() => coming.first().textContent()).toMatch(shown);
    for (const time of await coming.all()) {
      expect(await time.textContent()).toMatch(shown);
      expect(await time.getAttribute("datetime")).toMatch(/T15:00:00Z$/);
    }
  }
  await page.getByText("−07:00").first().waitFor();
  expect(await page.getByText(/^due .* ago, waiting/).count()).toBe(0);
  await page.close();
});

test("it shows the server's clock, and how far away a tick is by it", async () => {
  const { url, token } = server();
  // By the browser's clock, it is in four hours and a half.
  const at = `${new Date(Date.now() + 5.5 * 3_600_000).toISOString().slice(0, 19)}Z`;
  await new Api({ url, token }).put("/v1/workflows/reminders/schedules/in-five-hours", { spec: { timezone: "America/Vancouver", at: [at] } });
  const page = await look("/demo/schedules/reminders/in-five-hours");
  const next = page.locator("dd", { has: page.locator("time") }).first();
  await next.getByText("in 5 h").waitFor();
  await expect.poll(async () => off(await page.locator(".server").textContent()), { timeout: 5000 }).toBeLessThan(60);
  await page.close();
});

test("the month, the list and a subject's own clock are right in it, too", async () => {
  const { url, token } = server();
  await new Api({ url, token }).put("/v1/subjects/user_in_vancouver", { timezone: "America/Vancouver" });
  const page = await look("/demo/schedules/daily-digest/user_101?tab=month");
  const marks = page.locator(".mark.coming");
  await marks.first().waitFor();
  for (const mark of await marks.all()) expect(await mark.getAttribute("aria-label")).toMatch(/^08:00, to come/);
  await page.goto("/console/demo/schedules?key=user_101");
  const row = page.getByRole("row").filter({ hasText: "user_101" });
  await row.locator("time").waitFor();
  await expect.poll(() => row.locator("time").textContent()).toMatch(/08:00/);
  await page.goto("/console/demo/subjects/user_in_vancouver");
  const clock = page.locator("dt", { hasText: "its clock" }).locator("+ dd");
  await clock.waitFor();
  await expect.poll(async () => off(await clock.textContent()), { timeout: 5000 }).toBeLessThan(90); // it shows minutes
  await page.close();
});

test("the card of a time goes with the time", async () => {
  const page = await open("/demo/schedules/daily-digest/user_101");
  await page.locator("main time").first().hover();
  await page.locator(".clock-card").waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.getByRole("heading", { name: "Schedules", level: 1 }).waitFor();
  await page.locator(".clock-card").waitFor({ state: "detached" });
  await page.close();
});
