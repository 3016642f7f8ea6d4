import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";

useBrowser();
looksWell("overview", "/demo/", "Needs attention", async (page) => {
  await page.getByText("succeeded").nth(1).waitFor({ timeout: 20_000 });
});

/** The newest tick that has ended. */
async function ended(): Promise<string> {
  const { url, token } = server();
  const answer = await fetch(`${url}/v1/ticks?state=succeeded&limit=1`, { headers: { Authorization: `Bearer ${token}` } });
  return (await answer.json()).items[0].tick_id;
}

test("the tail shows ticks as they end, and stands still when paused", async () => {
  const page = await open("/demo/");
  await page.locator(".tail .line").first().waitFor({ timeout: 20_000 });
  await page.keyboard.press("l");
  await page.getByRole("button", { name: /^Paused/ }).waitFor();
  const shown = () => page.locator(".tail").textContent();
  const before = await shown();
  const newest = await ended();
  await expect.poll(ended, { timeout: 30_000 }).not.toBe(newest);
  expect(await shown()).toBe(before);
  await page.close();
});

test("the chart has its figures as a table", async () => {
  const page = await open("/demo/");
  await page.getByRole("button", { name: "Table" }).click();
  await page.getByRole("columnheader", { name: "succeeded" }).waitFor();
  await page.close();
});

test("everything is halted and continues", async () => {
  const page = await open("/demo/");
  await page.getByRole("button", { name: "Halt everything" }).click();
  await page.getByLabel("Why").fill("Migration of the mail server");
  await page.getByRole("textbox", { name: /to confirm/ }).fill("demo");
  await page.getByRole("dialog").getByRole("button", { name: "Halt everything" }).click();
  await page.getByText("Nothing fires.", { exact: true }).waitFor();
  await page.getByText("Migration of the mail server").waitFor();
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Continue" }).click();
  await page.getByText("Nothing fires.", { exact: true }).waitFor({ state: "detached" });
  await page.close();
});
