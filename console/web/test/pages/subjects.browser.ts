import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";
import { Api } from "../fixture";

useBrowser();
looksWell("subjects", "/demo/subjects", "user_123");
looksWell("subject", "/demo/subjects/user_123", "What did it get, and why?", async (page) => {
  await page.getByText("by the clock of America/New_York").waitFor();
});
looksWell("subject without anything", "/demo/subjects/nobody", "Nothing is stored for this subject");

test("a subject's zone is changed, and its schedules follow", async () => {
  const page = await open("/demo/subjects/user_123");
  for (const zone of ["Asia/Tokyo", "America/New_York"]) {
    await page.getByRole("button", { name: "Zone and quiet hours" }).click();
    await page.getByLabel("Zone", { exact: true }).fill(zone);
    await page.getByRole("button", { name: "Save" }).click();
    await page.locator("dd", { hasText: zone }).first().waitFor();
  }
  await page.close();
});

test("a zone that does not exist is refused at its field", async () => {
  const page = await open("/demo/subjects/user_123");
  await page.getByRole("button", { name: "Zone and quiet hours" }).click();
  await page.getByLabel("Zone", { exact: true }).fill("Mars/Olympus");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator(".field .wrong").waitFor();
  await page.close();
});

test("erasing a subject needs its name, and shows a receipt", async () => {
  const page = await open("/demo/subjects/user_159");
  await page.getByRole("button", { name: "Erase" }).click();
  const erase = page.getByRole("button", { name: "Erase for good" });
  expect(await erase.getAttribute("aria-disabled")).toBe("true");
  await page.getByLabel("Type user_159 to confirm").fill("user_159");
  await erase.click();
  await page.getByRole("link", { name: "Save the receipt" }).waitFor();
  await page.getByText("It was erased: the receipt is above.").waitFor();
  await page.close();
});

test("a profile that is opened again begins with what is stored now", async () => {
  const at = "/v1/subjects/contested";
  const api = new Api(server());
  await api.put(at, { timezone: "Europe/Berlin" });
  const page = await open("/demo/subjects/contested");
  for (const zone of ["Europe/Berlin", "Asia/Tokyo"]) {
    await api.put(at, { timezone: zone });
    await page.getByRole("button", { name: "Zone and quiet hours" }).click();
    expect(await page.getByLabel("Zone", { exact: true }).inputValue()).toBe(zone);
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
  }
  await api.delete(at);
  await page.close();
});
