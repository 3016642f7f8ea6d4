import { beforeAll, expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";
import { Api, hostile } from "../fixture";
import { monday } from "../monday";

useBrowser();
// Nobody leases the first tick of this schedule, so its second is skipped.
beforeAll(async () => {
  const api = new Api(server());
  const busy = "/v1/workflows/nobody-leases/schedules/busy";
  await api.put(busy, { spec: { timezone: "UTC", cron: ["0 0 1 1 *"] } });
  for (let i = 0; i < 2; i++) await api.post(`${busy}/trigger`, {});
});
const at = "/demo/schedules/reminders/user_123%2Fwater";
looksWell("schedule now", at, "Coming");
looksWell("schedule now with a long reason", "/demo/schedules/nobody-leases/busy", "the one before was still running");
looksWell("schedule month", "/demo/schedules/daily-digest/user_101?tab=month", "to come");
looksWell("schedule history", `${at}?tab=history`, "succeeded");
looksWell("schedule revisions", "/demo/schedules/daily-digest/user_103?tab=revisions", "Version 1 → 2");
looksWell("schedule explain", `${at}?tab=explain`, "Open the tick");
looksWell("schedule payload", `/demo/schedules/reminders/${encodeURIComponent(hostile[0])}?tab=payload`, "As the next tick would be sent");

test("a key with a slash, an encoded slash, markup or a mark of direction opens its own schedule", async () => {
  for (const key of hostile) {
    const page = await open(`/demo/schedules/reminders/${encodeURIComponent(key)}`);
    await page.getByRole("heading", { level: 1 }).filter({ hasText: key }).waitFor();
    expect(await page.locator("img").count()).toBe(0);
    await page.close();
  }
});

test("a line in the history shows the change of a version between two ticks", async () => {
  const { url, token } = server();
  const send = async (method: string, path: string, body: unknown) => {
    const answer = await fetch(`${url}/v1/workflows/daily-digest/schedules/versions${path}`, {
      method,
      body: JSON.stringify(body),
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    });
    expect(answer.ok, await answer.text()).toBe(true);
  };
  for (const hour of [8, 9, 10]) {
    await send("PUT", "", { spec: { timezone: "Asia/Tokyo", cron: [`0 ${hour} 1 1 *`] } });
    if (hour !== 10) await send("POST", "/trigger", {});
  }
  const page = await open("/demo/schedules/daily-digest/versions?tab=history");
  await page.getByRole("row").filter({ hasText: "version 3" }).filter({ hasText: "0 9 1 1 * → 0 10 1 1 *" }).waitFor();
  const lines = await page.getByRole("row").allInnerTexts();
  const kinds = lines.map((l) => (l.startsWith("version") ? l.slice(0, 9) : l.includes("open") ? "tick" : "")).filter(Boolean);
  expect(kinds).toEqual(["version 3", "tick", "version 2", "tick"]);
  await page.getByRole("link", { name: "version 2" }).click();
  await page.getByRole("heading", { name: "Version 1 → 2" }).waitFor();
  await page.close();
});

test("a number of 30 digits stays exact", async () => {
  const page = await open(`/demo/schedules/reminders/${encodeURIComponent(hostile[0])}?tab=payload`);
  await page.getByLabel("Payload", { exact: true }).getByText("123456789012345678901234567890").waitFor();
  await page.getByLabel("Payload", { exact: true }).getByText("1.10").waitFor();
  await page.close();
});

test("it is paused with a note, resumed, fired once, skipped, moved, and deleted", async () => {
  const page = await open("/demo/schedules/daily-digest/user_140");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await dialog.getByLabel("Why").fill("<b>until the move</b>");
  await dialog.getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByText("<b>until the move</b>").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Pause", exact: true }).waitFor();
  await page.getByRole("button", { name: "Fire once" }).click();
  await dialog.getByRole("button", { name: "Fire once" }).click();
  await page.getByText("A tick was made.").first().waitFor();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("button", { name: "Skip next" }).click();
  await dialog.getByRole("button", { name: "Skip", exact: true }).click();
  await page.getByText("They will not fire.").first().waitFor();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("button", { name: "Move next" }).click();
  const to = dialog.getByLabel("To", { exact: true });
  await to.fill((await to.inputValue()).replace(/T.*/, "T08:45"));
  await dialog.getByRole("button", { name: "Move", exact: true }).click();
  await page.getByText("Moved.").first().waitFor();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("button", { name: "Delete" }).click();
  await dialog.getByLabel(/to confirm/).fill("user_140");
  await dialog.getByRole("button", { name: "Delete", exact: true }).click();
  await page.waitForURL("**/demo/schedules");
  await page.close();
});

test("a backfill shows its number before it begins", async () => {
  // It fires on weekdays in Kolkata, and no calendar takes a day from it. Last week is within the retention of ticks.
  const page = await open("/demo/schedules/daily-digest/user_120");
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("button", { name: "Backfill" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("From").fill(`${monday("Asia/Kolkata", -7)}T00:00`);
  await dialog.getByLabel("Before").fill(`${monday("Asia/Kolkata", -2)}T00:00`);
  await dialog.getByRole("button", { name: "Make 5 ticks" }).click();
  await page.getByText("The backfill has begun.").first().waitFor();
  await page.close();
});

test("an earlier version is restored", async () => {
  const page = await open("/demo/schedules/daily-digest/user_103?tab=revisions");
  await page.getByRole("button", { name: "Restore" }).last().click();
  await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
  await page
    .getByText(/The schedule is as in version/)
    .first()
    .waitFor();
  await page.close();
});
