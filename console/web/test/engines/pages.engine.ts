import { mkdirSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { until } from "../until";
import { Driver } from "./webdriver";

// Firefox and WebKit, each over its own WebDriver server: FIREFOX and WEBKIT name the servers.
const engines = {
  firefox: { server: process.env.FIREFOX, options: { browserName: "firefox", "moz:firefoxOptions": { args: ["-headless"] } } },
  webkit: { server: process.env.WEBKIT, options: {} },
};

/** Each page, and a text that it shows once it is read. */
const pages: [path: string, text: string][] = [
  ["/demo/", "Needs attention"],
  ["/demo/forecast", "No tick waits for the quota."],
  ["/demo/schedules?workflow=daily-digest", "user_100"],
  ["/demo/schedules?group=timing", "at 08:00 on weekdays in New York"],
  ["/demo/schedules/daily-digest/user_101", "Coming"],
  ["/demo/schedules/daily-digest/user_101?tab=month", "to come"],
  ["/demo/schedules/daily-digest/user_103?tab=revisions", "Version 1"],
  ["/demo/schedules/new", "Name"],
  ["/demo/subjects/user_123", "What did it get, and why?"],
  ["/demo/workflows/daily-digest", "The outline is the number of active schedules"],
  ["/demo/ticks?workflow=invoices", "failed"],
  ["/demo/ticks?view=live", "ended"],
  ["/demo/dead-letters", "billing-hook"],
  ["/demo/endpoints/billing-hook", "Last answers"],
  ["/demo/calendars/us-holidays?year=2026", "In the list of schedules"],
  ["/demo/zones?zone=America/New_York", "offset before"],
  ["/demo/dst", "In the next 12 months"],
  ["/demo/operations", "Operations"],
  ["/demo/audit", "schedule.put"],
  ["/demo/usage", "requests per second"],
  ["/demo/settings", "Fallback zone"],
];

for (const [engine, { server, options }] of Object.entries(engines)) {
  if (!server) continue;
  describe(engine, () => {
    let driver: Driver;
    const { url, token } = inject("servers")[0];
    beforeAll(async () => {
      driver = await Driver.open(server, options);
      await driver.size(1280, 860);
    });
    afterAll(() => driver.close());

    test("a user signs in", async () => {
      await driver.go(`${url}/console/sign-in`);
      await driver.type("input[name=credential]", token);
      await driver.click("button[type=submit]");
      await driver.shows("Needs attention");
    });

    test.each(pages)("%s is shown", async (path, text) => {
      for (const width of [1280, 520]) {
        await driver.size(width, 860);
        await driver.go(`${url}/console${path}`);
        await driver.shows(text);
        if (process.env.SCREENS) {
          mkdirSync(process.env.SCREENS, { recursive: true });
          writeFileSync(`${process.env.SCREENS}/${engine}-${width}${path.replace(/[^a-z0-9]+/gi, "-")}.png`, await driver.screenshot());
        }
        const wider = await driver.run<number>("return document.documentElement.scrollWidth - innerWidth");
        expect(wider, "the page is wider than the window").toBeLessThanOrEqual(0);
      }
    });

    test("the search goes to a subject by keys alone", async () => {
      await driver.size(1280, 860);
      await driver.go(`${url}/console/demo/`);
      await driver.shows("Needs attention");
      await driver.press("k", "\uE009");
      await until(() => driver.run<boolean>("return document.activeElement.matches('.palette input')"), 5_000, "the search is open");
      for (const letter of "user_123") await driver.press(letter);
      await until(() => driver.run<boolean>("return /user_123\\s+subject/.test(document.querySelector('#found li:last-child')?.innerText ?? '')"), 20_000, "the subject is found");
      await driver.press("\uE013"); // from the first to the last
      await driver.press("\uE007");
      await driver.shows("What did it get, and why?");
    });

    test("a dialog opens, and the key Escape closes it", async () => {
      await driver.go(`${url}/console/demo/endpoints`);
      await driver.click("button", "New endpoint");
      await until(() => driver.run<boolean>("return document.querySelector('dialog[open]') !== null"), 5_000, "a dialog is open");
      await driver.press("\uE00C");
      await until(() => driver.run<boolean>("return document.querySelector('dialog[open]') === null"), 5_000, "no dialog is open");
    });

    test("a text in a filter narrows the list", async () => {
      await driver.go(`${url}/console/demo/schedules?workflow=daily-digest&key_contains=user_131`);
      await driver.shows("user_131");
      expect(await driver.run("return document.body.innerText.includes('user_130')")).toBe(false);
    });
  });
}
