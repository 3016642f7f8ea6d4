import { expect, test } from "vitest";
import { looksWell, open, useBrowser } from "../browser";

useBrowser();
looksWell("zones", "/demo/zones", "Australia/Lord_Howe");
looksWell("a zone", "/demo/zones?zone=America/New_York", "offset before");
looksWell("clock changes", "/demo/dst", "In the next 12 months", async (page) => {
  await page.getByText("02:00 → 03:00").first().waitFor();
});

test("all zones are searched, and one shows its changes", async () => {
  const page = await open("/demo/zones");
  await page.getByRole("link", { name: "America/New_York" }).waitFor();
  expect(await page.getByRole("link", { name: "Europe/Kyiv" }).count()).toBe(0);
  await page.getByLabel("name contains").fill("kyiv");
  await page.getByRole("link", { name: "Europe/Kyiv" }).click();
  await page.getByRole("heading", { name: "Europe/Kyiv" }).waitFor();
  await page.getByRole("cell", { name: "EEST" }).first().waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("heading", { name: "Europe/Kyiv" }).waitFor({ state: "detached" });
  await page.close();
});

test("the report says what a gap does, leads to a schedule and is saved", async () => {
  const page = await open("/demo/dst?workflow=daily-digest&zone=new_york");
  await page.getByText("it becomes 03:30").first().waitFor();
  const saved = page.waitForEvent("download");
  await page.getByRole("link", { name: "Save as CSV" }).click();
  expect((await saved).suggestedFilename()).toBe("clock-changes.csv");
  await page.locator(".samples a").first().click();
  await page.getByRole("heading", { name: /user_\d+/ }).waitFor();
  await page.close();
});
