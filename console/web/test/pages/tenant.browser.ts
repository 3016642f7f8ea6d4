import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";

useBrowser();
looksWell("operations", "/demo/operations", "Operations");
looksWell("audit", "/demo/audit", "schedule.put");
looksWell("usage", "/demo/usage", "requests per second");
looksWell("settings", "/demo/settings", "Fallback zone");

test("a pause of many is followed, and undone exactly", async () => {
  const page = await open("/demo/schedules?key_prefix=user_13");
  await page.getByRole("link", { name: /user_130/ }).waitFor();
  await page.getByRole("button", { name: "all that match" }).click();
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByLabel("Type 10 to confirm").fill("10");
  await page.getByRole("button", { name: "Pause 10" }).click();
  await page.getByRole("link", { name: "Follow it" }).first().click();
  await page.getByRole("definition").filter({ hasText: "succeeded" }).waitFor();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByRole("button", { name: "Resume 10" }).click();
  await page.getByText("The schedules are being resumed.").first().waitFor();
  await page.close();
});

test("a change in the audit shows what differs", async () => {
  const page = await open("/demo/audit?action=schedule.put&target=workflows/daily-digest/schedules/user_100");
  await page
    .getByRole("button", { name: /^Show change/ })
    .first()
    .click();
  await page.locator("dialog").getByText("cron").first().waitFor();
  await page.close();
});

test("an API key is made, shown once, rotated and revoked", async () => {
  const page = await open("/demo/settings");
  await page.getByRole("button", { name: "New key" }).click();
  await page.getByLabel("Name", { exact: true }).fill("digest-worker");
  await page.getByLabel(/ticks:work/).check();
  await page.getByRole("button", { name: "Make the key" }).click();
  expect(await page.locator("dialog pre").textContent()).toMatch(/^carillon_key_/);
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Rotate digest-worker" }).click();
  await page.getByRole("button", { name: "Issue a new secret" }).click();
  await page.locator("dialog pre").waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Revoke digest-worker" }).click();
  await page.getByLabel("Type digest-worker to confirm").fill("digest-worker");
  await page.getByRole("button", { name: "Revoke it" }).click();
  await page.getByRole("button", { name: "Rotate digest-worker" }).waitFor({ state: "detached" });
  await page.close();
});

test("the platform's operator sees the engine and the tenants, and suspends one", async () => {
  const as = server().platform_token;
  const page = await open("/platform/overview", { as });
  await page.getByText("swept, not handed out").waitFor();
  await page.getByText("of 64").first().waitFor();
  await page.goto("/console/platform/tenants");
  await page.getByRole("button", { name: "New tenant" }).click();
  await page.getByLabel("Name").fill("globex");
  await page.getByRole("button", { name: "Make the tenant" }).click();
  await page.getByRole("button", { name: "Suspend globex" }).click();
  await page.getByLabel("Type globex to confirm").fill("globex");
  await page.getByRole("button", { name: "Suspend it" }).click();
  await page.getByRole("button", { name: "Continue globex" }).waitFor();
  await page.goto("/console/platform/changes");
  await page.getByText("globex").first().waitFor();
  await page.close();
});
