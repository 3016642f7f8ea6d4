import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";
import { Api } from "../fixture";
import { until } from "../until";

useBrowser();
looksWell("ticks", "/demo/ticks?workflow=invoices", "failed");
looksWell("ticks live", "/demo/ticks?view=live", "ended");
looksWell("no tick matches", "/demo/ticks?subject=nobody", "No tick matches");
looksWell("dead letters", "/demo/dead-letters", "billing-hook");
looksWell("dead letters one by one", "/demo/dead-letters?view=list", "failed");

test("a failed tick shows its attempts and the answer as text, and is replayed", async () => {
  const page = await open("/demo/ticks?workflow=invoices&state=failed");
  await page
    .getByRole("link", { name: /^Open tick_/ })
    .first()
    .click();
  await page.getByText("attempt 1: failed").waitFor();
  expect(await page.locator("main script").count()).toBe(0);
  await page.getByRole("button", { name: "Replay" }).click();
  await page.getByRole("button", { name: "Deliver it again" }).click();
  await page.getByText("The tick is delivered again.").first().waitFor();
  await page.close();
});

test("dead letters of a workflow are counted before they are replayed", async () => {
  const page = await open("/demo/dead-letters");
  await page.getByRole("button", { name: "Replay the workflow invoices" }).click();
  await page.getByText(/ticks are delivered again, newest first/).waitFor();
  await page.getByRole("button", { name: /Deliver [\d,]+ again/ }).click();
  await page.getByText("The replay has begun.").first().waitFor();
  await page.close();
});

test("the tail shows ticks as they end", async () => {
  const page = await open("/demo/ticks?view=live&workflow=daily-digest");
  const line = page.locator(".tail-rows .line").first();
  const api = new Api(server());
  const shown = async () => {
    // A tick that fires before its process learns of the tail is not shown; a later one is.
    await api.post("/v1/workflows/daily-digest/schedules/user_101/trigger", {});
    return line.waitFor({ timeout: 3000 }).then(
      () => true,
      () => false,
    );
  };
  await until(shown, 40_000, "the tail shows a tick");
  await page.close();
});
