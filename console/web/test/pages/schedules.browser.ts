import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";
import { hostile } from "../fixture";

useBrowser();
looksWell("schedules", "/demo/schedules?workflow=daily-digest", "user_100");
looksWell("schedules by timing", "/demo/schedules?group=timing", "at 08:00 on weekdays in New York");
looksWell("no schedule matches", "/demo/schedules?key_contains=nobody", "No schedule matches");

looksWell("import schedules", "/demo/schedules", "user_100", async (page) => {
  await page.getByRole("button", { name: "File" }).click();
  await page.getByRole("button", { name: "Import a file" }).click();
  await page.getByLabel("File", { exact: true }).setInputFiles({ name: "schedules.ndjson", mimeType: "application/x-ndjson", buffer: Buffer.from(imported(3)) });
  await page.getByRole("button", { name: "Check the file" }).click();
  await page.getByText("It would make 2").waitFor();
});

/** Lines of schedules; the last is bad. */
const imported = (n: number) => Array.from({ length: n }, (_, i) => JSON.stringify({ workflow: "imported", key: `<b>k${i}`, spec: { cron: i === n - 1 ? "61 8 * * *" : "0 8 * * *" } })).join("\n");

test("a file is checked without a change, imported but for its bad line, and exported again", async () => {
  const page = await open("/demo/schedules?workflow=imported");
  await page.getByText("No schedule matches").waitFor();
  await page.getByRole("button", { name: "File" }).click();
  await page.getByRole("button", { name: "Import a file" }).click();
  await page.getByLabel("File", { exact: true }).setInputFiles({ name: "schedules.ndjson", mimeType: "application/x-ndjson", buffer: Buffer.from(imported(1202)) });
  await page.getByRole("button", { name: "Check the file" }).click();
  await page.getByText("It would make 1,201, change 0; 0 unchanged, 0 named again later, 1 bad.").waitFor();
  await page.getByRole("row").filter({ hasText: "1,202" }).filter({ hasText: "<b>k1201" }).waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Read again" }).click();
  await page.getByText("No schedule matches").waitFor();
  await page.getByRole("button", { name: "File" }).click();
  await page.getByRole("button", { name: "Import a file" }).click();
  await page.getByLabel("File", { exact: true }).setInputFiles({ name: "schedules.ndjson", mimeType: "application/x-ndjson", buffer: Buffer.from(imported(1202)) });
  await page.getByRole("button", { name: "Check the file" }).click();
  await page.getByRole("button", { name: "Import 1,201 schedules" }).click();
  await page.getByText("Made 1,201, changed 0").waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "File" }).click();
  await page.getByRole("button", { name: "Export to a file" }).click();
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save the file" }).click();
  const lines = (await text(await (await saved).createReadStream())).trimEnd().split("\n");
  expect(lines).toHaveLength(1201);
  expect(JSON.parse(lines[0])).toMatchObject({ workflow: "imported", key: "<b>k0" });
  await page.getByText("1,201 schedules").waitFor();
  await page.close();
  const { url, token } = server();
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const deleted = await fetch(`${url}/v1/schedules/actions`, { method: "POST", headers, body: JSON.stringify({ action: "delete", filter: { workflow: "imported" } }) });
  expect(deleted.status).toBe(202);
});

test("a filter is in the address, and a key with markup is only text", async () => {
  const page = await open("/demo/schedules");
  await page.getByLabel("key contains").fill("onerror");
  await page.getByRole("link", { name: hostile[0] }).waitFor();
  expect(new URL(page.url()).searchParams.get("key_contains")).toBe("onerror");
  expect(await page.locator("img").count()).toBe(0);
  await page.close();
});

test("j, k and Enter open a row", async () => {
  const page = await open("/demo/schedules?key=user_102");
  await page.getByRole("link", { name: /user_102/ }).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/schedules/daily-digest/user_102");
  await page.close();
});

test("many are paused with a note after a dry run, and resumed", async () => {
  const page = await open("/demo/schedules?key_prefix=user_11");
  await page.getByRole("link", { name: /user_110/ }).waitFor();
  await page.getByRole("button", { name: "all that match" }).click();
  for (const [verb, state] of [
    ["Pause", "paused"],
    ["Resume", "active"],
  ]) {
    if (verb === "Resume") await page.getByRole("button", { name: "all that match" }).click();
    await page.getByRole("button", { name: verb, exact: true }).click();
    await page.getByText("10 of 10 schedules would change").waitFor();
    await page.getByLabel("Type 10 to confirm").fill("10");
    await page.getByRole("button", { name: `${verb} 10` }).click();
    await page.getByText(`${verb}: begun for 10 schedules.`).first().waitFor();
    await expect
      .poll(
        async () => {
          await page.getByRole("button", { name: "Read again" }).click();
          return page.getByRole("row").filter({ hasText: state }).count();
        },
        { timeout: 15_000 },
      )
      .toBe(10);
  }
  await page.close();
});
