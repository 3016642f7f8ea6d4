import { expect, test } from "vitest";
import { looksWell, open, useBrowser } from "../browser";

useBrowser();
looksWell("forecast", "/demo/forecast", "No tick waits for the quota.");
looksWell("forecast without a tick", "/demo/forecast?workflow=nobody", "No tick is due");

looksWell("heat of a week", "/demo/forecast?workflow=daily-digest", "room to add", async (page) => {
  await page.getByText("room to add").scrollIntoViewIfNeeded();
});

test("the largest minute of an hour of the week shows its content, from a shade and from the table", async () => {
  const page = await open("/demo/forecast?workflow=daily-digest");
  await page.locator(".heat .shade6").last().click();
  await page.getByRole("table", { name: "What is in this minute" }).getByText("daily-digest").first().waitFor();
  await page.getByRole("button", { name: "Show the hours as a table" }).click();
  await page
    .getByRole("button", { name: /ticks. Show them/ })
    .first()
    .click();
  await page.getByRole("table", { name: "What is in this minute" }).getByText("daily-digest").first().waitFor();
  await page.close();
});

test("a minute shows its content", async () => {
  const page = await open("/demo/forecast");
  await page.getByText("No tick waits for the quota.").waitFor();
  await page.goto(`/console/demo/forecast?at=${new Date(Math.ceil(Date.now() / 60_000 + 2) * 60_000).toISOString()}`);
  await page.getByRole("table", { name: "What is in this minute" }).getByText("reminders").waitFor();
  await page.close();
});

test("the schedules of a group get a jitter after a dry run", async () => {
  const page = await open("/demo/forecast?workflow=daily-digest");
  await page.locator(".heat .shade6").last().click();
  const group = page.getByRole("table", { name: "What is in this minute" });
  await group
    .getByRole("button", { name: /^Spread daily-digest in/ })
    .first()
    .click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/of \d+ schedules would change/).waitFor();
  await dialog.getByLabel("Jitter").selectOption("5m");
  const number = /Type (\d+) to confirm/.exec((await dialog.textContent()) ?? "");
  if (number) await dialog.getByLabel(/to confirm/).fill(number[1]);
  await dialog.getByRole("button", { name: /^Spread \d/ }).click();
  await page
    .getByText(/^Spread: begun for/)
    .first()
    .waitFor();
  await page.getByRole("link", { name: "Follow it" }).first().click();
  await page.getByText("succeeded").first().waitFor();
  expect(await page.locator("main").textContent()).toContain("5m");
  await page.close();
});
