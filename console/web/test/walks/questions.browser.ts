import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { errors, open, server, useBrowser } from "../browser";
import { Api } from "../fixture";
import { monday } from "../monday";
import { Walk } from "./walk";
import { endedReports, endedWorld, type Reports, type World } from "./world";

// Each question of somebody who looks after schedules is answered within five clicks from the overview.

useBrowser();
const api = new Api({ url: server().url, token: server().acme.key });
let world: World;
beforeAll(async () => {
  world = await endedWorld(api, server().acme.world);
}, 180_000);

/** Asks one question: from the overview on, by clicks and keys alone. */
function ask(question: string, by: (walk: Walk, page: Page) => Promise<void>) {
  test(question, async () => {
    errors.length = 0;
    const page = await open("/acme/", { as: api.ready.token });
    try {
      await page.setViewportSize({ width: 1120, height: 740 });
      await page.getByText("Needs attention").waitFor();
      await by(new Walk(page), page);
      expect(errors).toEqual([]);
    } finally {
      await page.close();
    }
  });
}

/** Finds something by its name in the palette, and opens it. */
async function find(walk: Walk, page: Page, name: string, option: RegExp) {
  await walk.click(page.getByRole("button", { name: "Search or go to" }));
  await walk.type(page.getByRole("combobox", { name: "Search or go to" }), name);
  await walk.click(page.getByRole("option", { name: option }));
}

const rail = (page: Page, name: string) => page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true });

ask("why did user_123 get nothing today?", async (walk, page) => {
  await find(walk, page, "user_123", /^user_123\s*subject/);
  await walk.click(page.getByRole("button", { name: "Day after" }));
  const why = page.locator("section", { has: page.getByRole("heading", { name: "What did it get, and why?" }) });
  await why.getByText("quiet hours of the subject").waitFor();
  await why.getByText("paused", { exact: true }).waitFor();
  await why.getByRole("button", { name: "Copy as text" }).waitFor();
  await walk.answered("why", why);
});

/** The date of the second Sunday of the next March, on which the clocks of New York are set forward. */
function spring(): Date {
  const year = new Date().getUTCFullYear();
  const [first, second] = [year, year + 1].map((y) => new Date(Date.UTC(y, 2, 14 - ((new Date(Date.UTC(y, 2, 14)).getUTCDay() + 7) % 7), 7)));
  return first.getTime() > Date.now() ? first : second;
}

ask("what breaks on 14 March, or whenever the clock is next set forward?", async (walk, page) => {
  await walk.click(rail(page, "Clock changes"));
  const change = page
    .getByRole("listitem")
    .filter({ hasText: `Sun ${spring().getUTCDate()} Mar` })
    .filter({ hasText: "America/New_York" });
  await change.getByText("02:00 → 03:00").waitFor();
  await change.getByText("40 schedules have a time that the clock skips, such as 02:30: it becomes 03:30").waitFor();
  await walk.answered("clock", change);
});

ask("will 08:00 fit the quota, and what if not?", async (walk, page) => {
  await walk.click(rail(page, "Forecast"));
  const peak = page.getByRole("table", { name: "Peaks" }).getByRole("row").filter({ hasText: "1,200" });
  await peak.getByText("4 min 0 s").waitFor();
  await walk.click(peak.getByRole("button", { name: "Show" }));
  await page.getByRole("table", { name: "What is in this minute" }).getByText(`at 08:00 every day in ${world.herd}`).waitFor();
  await walk.slide(page.getByRole("slider", { name: /^jitter/ }), "10");
  await page.getByText("No tick waits for the quota.").waitFor();
  await walk.answered("quota", page.getByText("No tick waits for the quota."));
});

describe("the wave", () => {
  let reports: Reports;
  beforeAll(async () => {
    reports = await endedReports(api, world);
  }, 180_000);

  ask("does 09:00 local run well around the world?", async (walk, page) => {
    await walk.click(rail(page, "Workflows"));
    await walk.click(page.getByRole("link", { name: "morning-report" }));
    const column = page.getByRole("link", { name: new RegExp(reports.zone) });
    await expect.poll(() => column.getAttribute("aria-label"), { timeout: 40_000 }).toMatch(/(\d+) planned at \d\d:\d\d UTC, \1 succeeded, 0 failed, 0 skipped/);
    expect(await page.getByRole("combobox", { name: "Local time" }).inputValue()).toBe(reports.local);
    await walk.answered("wave", page.getByRole("region", { name: "The wave" }));
  });
});

ask("pause all free-plan users until Monday", async (walk, page) => {
  await walk.click(rail(page, "Schedules"));
  await walk.type(page.getByLabel("label", { exact: true }), "plan:free");
  await page.waitForURL("**label=plan*");
  await page.getByRole("link", { name: /user_2001/ }).waitFor();
  await walk.click(page.getByRole("button", { name: "all that match" }));
  await walk.click(page.getByRole("button", { name: "Pause", exact: true }));
  const dialog = page.getByRole("dialog");
  await dialog.getByText("800 of 800 schedules would change").waitFor();
  await walk.type(dialog.getByLabel("Why"), "The free plan pauses until Monday.");
  await walk.tab(dialog.getByLabel("Until"));
  const until = `${monday("Pacific/Auckland", 7)}T09:00`;
  await dialog.getByLabel("Until").fill(until); // by keys, in the order of the browser's language
  await walk.tab(dialog.getByLabel("Type 800 to confirm"));
  await page.keyboard.type("800");
  await page.keyboard.press("Enter");
  await walk.click(page.getByRole("link", { name: "Follow it" }).first());
  await page.getByText("800 done").waitFor();
  await page.getByRole("definition").filter({ hasText: "succeeded" }).waitFor();
  await page.getByText("The free plan pauses until Monday.").waitFor();
  const sent = /"until": "([^"]+)"/.exec((await page.getByLabel("What was asked").textContent()) ?? "")?.[1] ?? "";
  expect(new Date(sent).toLocaleString("sv", { timeZone: "Pacific/Auckland" }), "the browser is in Auckland").toBe(until.replace("T", " ").concat(":00"));
  await page.getByRole("button", { name: "Undo" }).waitFor();
  await walk.answered("pause");
});

ask("what changed, and what did it do?", async (walk, page) => {
  await find(walk, page, "user_123", /^daily-digest\/user_123\s*schedule/);
  await walk.click(page.getByRole("link", { name: "Revisions" }));
  await page.getByText("Version 1: at 08:00 on weekdays in New York").waitFor();
  await page.getByText("Version 2: at 09:00 on weekdays in New York").waitFor();
  await page.getByText("Version 1 → 2").waitFor();
  await walk.answered("change", page.getByText("Version 1 → 2"));
});

ask("what will be sent?", async (walk, page) => {
  await find(walk, page, "user_123", /^daily-digest\/user_123\s*schedule/);
  await walk.click(page.getByRole("link", { name: "Payload" }));
  await page.getByLabel("Headers").getByText("webhook-signature").waitFor();
  await page.getByLabel("Body").getByText("ada@example.com").waitFor();
  await page.getByText("curl -X POST").waitFor();
  await walk.answered("sent");
});

ask("erase this user, with a receipt", async (walk, page) => {
  await find(walk, page, "user_777", /^user_777\s*subject/);
  await walk.click(page.getByRole("button", { name: "Erase" }));
  await walk.type(page.getByLabel("Type user_777 to confirm"), "user_777");
  await walk.click(page.getByRole("button", { name: "Erase for good" }));
  const receipt = page.locator("section", { has: page.getByRole("heading", { name: "Erased" }) });
  await receipt.getByRole("link", { name: "Save the receipt" }).waitFor();
  await expect.poll(() => receipt.textContent()).toMatch(/hash[\da-zA-Z_-]{20,}/);
  await page.getByText("Nothing is stored for this subject").waitFor();
  await walk.answered("erase");
});
