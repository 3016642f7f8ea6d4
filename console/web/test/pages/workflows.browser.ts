import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";
import { Api } from "../fixture";

useBrowser();
looksWell("workflows", "/demo/workflows", "daily-digest");
looksWell("workflow", "/demo/workflows/daily-digest", "The outline is the number of active schedules");

test("the wave shows its figures as a table", async () => {
  const page = await open("/demo/workflows/daily-digest");
  await page.getByRole("button", { name: "Table" }).first().click();
  await page.getByRole("link", { name: "Asia/Tokyo" }).waitFor();
  await page.close();
});

test("the wave shows a moment of the last day", async () => {
  const page = await open("/demo/workflows/daily-digest");
  const slider = page.getByRole("slider", { name: /^Shown/ });
  await slider.waitFor();
  expect(await slider.getAttribute("aria-valuetext")).toBe("now");
  await slider.fill("-96");
  const moment = await slider.getAttribute("aria-valuetext");
  expect(moment).toMatch(/^\w+ \d+ \w+ \d\d:(00|15|30|45) UTC$/);
  await page
    .getByRole("region", { name: "The wave" })
    .getByText(moment?.slice(-9, -4) ?? "", { exact: true })
    .first()
    .waitFor();
  await slider.fill("0");
  await page.getByRole("region", { name: "The wave" }).getByText("now", { exact: true }).waitFor();
  await page.close();
});

test("the last hour of a workflow shows how late its ticks were", async () => {
  const page = await open("/demo/workflows/reminders");
  const table = page.getByRole("table", { name: /^Ticks by lateness and by five minutes/ });
  await table.getByRole("rowheader", { name: /^≤ \d/ }).first().waitFor();
  expect((await table.locator("td").allTextContents()).some((text) => Number(text.replaceAll(",", "")) > 0)).toBe(true);
  await page.close();
});

looksWell("change a workflow", "/demo/workflows/daily-digest", "The outline is the number of active schedules", async (page) => {
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Ticks a second").fill("50");
  await page.getByText("Defaults of its schedules").last().click();
});

test("a workflow is made, changed with a look at the difference, and deleted", async () => {
  const page = await open("/demo/workflows");
  await page.getByRole("button", { name: "New workflow" }).click();
  await page.getByLabel("Name", { exact: true }).fill("weekly-report");
  await page.getByLabel("Ticks go to").selectOption("mailer");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "weekly-report" }).waitFor();
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Ticks go to").selectOption("");
  await page.getByLabel("Running at once, at most").fill("7");
  await page.getByLabel("Ticks a second").fill("50");
  await page.getByLabel("Ramp").fill("soon");
  await page.getByLabel("Handed out within").fill("30s");
  await page.getByText("Defaults of its schedules").last().click();
  await page.getByLabel("Attempts at most").fill("3");
  await page.getByText("/max_running").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").getByRole("alert").waitFor();
  expect(await page.getByLabel("Ramp").getAttribute("aria-invalid")).toBe("true");
  await page.getByLabel("Ramp").fill("5m");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("50 ticks a second, ramp 5m").waitFor();
  await page.getByText("handed out within 30s").waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByLabel("Type weekly-report to confirm").fill("weekly-report");
  await page.getByRole("button", { name: "Delete it" }).click();
  await page.getByText("The workflow weekly-report is deleted.").first().waitFor();
  await page.close();
});

test("a change of a workflow that somebody else made meanwhile is shown before it is replaced", async () => {
  const at = "/v1/workflows/contested";
  const api = new Api(server());
  await api.put(at, {});
  const page = await open("/demo/workflows/contested");
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Running at once, at most").fill("7");
  await api.put(at, { rate: { per_second: 50 } });
  await page.getByText("50 ticks a second").waitFor(); // the page behind the dialog has read theirs; the dialog began before
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("Somebody changed it since you began").waitFor();
  await page.getByRole("dialog").getByText("/rate").waitFor();
  await page.getByRole("button", { name: "Replace theirs" }).click();
  await page.getByText("The workflow contested is saved.").first().waitFor();
  await page.getByText("50 ticks a second").waitFor({ state: "detached" });
  await api.delete(at);
  await page.close();
});

test("a workflow is held and released", async () => {
  const page = await open("/demo/workflows/reminders");
  await page.getByRole("button", { name: "Hold" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Hold" }).click();
  await page.getByText("The workflow is held.").first().waitFor();
  await page.getByRole("button", { name: "Release" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Release" }).click();
  await page.getByText("The workflow is released.").first().waitFor();
  await page.close();
});
