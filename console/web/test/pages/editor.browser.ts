import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";
import { Api } from "../fixture";

useBrowser();
looksWell("editor new", "/demo/schedules/new", /In \d{4}: /);
looksWell("editor", "/demo/schedules/daily-digest/user_150/edit", /In \d{4}: /);

test("a schedule is made from days and times, and edited as cron", async () => {
  const page = await open("/demo/schedules/new");
  await page.getByLabel("Workflow").fill("made-here");
  await page.getByLabel("Key").fill("a/b%2F");
  await page.getByLabel("Time zone").fill("Europe/Berlin");
  await page.getByText("at 08:00 on weekdays in Berlin").waitFor();
  await page.getByLabel("Payload").fill('{"n":  123456789012345678901234567890}');
  await page.getByRole("button", { name: "Make it" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make it" }).click();
  await page.waitForURL("**/schedules/made-here/a%2Fb%252F");
  await page.getByRole("link", { name: "Payload" }).click();
  await page.getByLabel("Payload", { exact: true }).getByText("123456789012345678901234567890").waitFor();
  await page.getByRole("link", { name: "Edit" }).click();
  await page.getByRole("button", { name: "Cron" }).click();
  await page.getByLabel("Cron, one expression a line").fill("30 9 1 * *");
  await page.getByText("At the caret: day of week").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").getByText("/spec/cron/0").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").first().waitFor();
  await page.close();
});

test("a mistake is told at its field", async () => {
  const page = await open("/demo/schedules/new");
  await page.getByLabel("Time zone").fill("Mars/Olympus");
  await page.locator('[aria-invalid="true"]').waitFor();
  expect(await page.getByLabel("Time zone").getAttribute("aria-invalid")).toBe("true");
  await page.close();
});

test("who saves after somebody else sees both changes", async () => {
  const [mine, theirs] = [await open("/demo/schedules/daily-digest/user_151/edit"), await open("/demo/schedules/daily-digest/user_151/edit")];
  for (const [page, note] of [
    [theirs, "theirs"],
    [mine, "mine"],
  ] as const) {
    await page.getByLabel("Note").fill(note);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    if (page === theirs) await page.getByText("Saved.").first().waitFor();
  }
  await mine.getByText("Somebody changed it since you began.").waitFor();
  await mine.getByRole("button", { name: "Replace theirs" }).click();
  await mine.getByText("Saved.").first().waitFor();
  await mine.close();
  await theirs.close();
});

test("an editor that is opened again begins with what is stored now", async () => {
  const at = "/v1/workflows/daily-digest/schedules/user_152";
  const api = new Api(server());
  const page = await open("/demo/schedules/daily-digest/user_152");
  await page.getByRole("link", { name: "Edit" }).click();
  await page.getByLabel("Note").waitFor();
  await page.getByRole("link", { name: "Cancel" }).click();
  await api.patch(at, { note: "theirs" });
  await page.getByRole("link", { name: "Edit" }).click();
  await page.getByLabel("Note").waitFor();
  expect(await page.getByLabel("Note").inputValue()).toBe("theirs");
  await page.close();
});
