import { test } from "vitest";
import { looksWell, open, useBrowser } from "../browser";

useBrowser();
looksWell("calendars", "/demo/calendars", "us-holidays");
looksWell("calendar", "/demo/calendars/us-holidays?year=2026", "In the list of schedules");
// Days in 2090 stay to come, and only days to come move ticks.
looksWell("change a calendar", "/demo/calendars/us-holidays", "In the list of schedules", async (page) => {
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Days", { exact: true }).fill("2026-12-25\n2027-01-01\n2090-03-17");
  await page.getByText("Added 1:").waitFor();
  await page.getByText("No longer:").first().waitFor();
});
looksWell("new calendar", "/demo/calendars", "us-holidays", async (page) => {
  await page.getByRole("button", { name: "New calendar" }).click();
});

const year = new Date().getUTCFullYear() + 1; // a repeated event names days of the next ten years only
const fifth = `${new Date(`${year}-07-05`).toLocaleDateString("en", { weekday: "short", timeZone: "UTC" })} 5 Jul ${year}`;
const ics = `BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nDTSTART;VALUE=DATE:${year}0705\nRRULE:FREQ=YEARLY;COUNT=2\nEND:VEVENT\nEND:VCALENDAR\n`;

test("a calendar is made of an iCalendar file, changed and deleted", async () => {
  const page = await open("/demo/calendars");
  await page.getByRole("button", { name: "New calendar" }).click();
  await page.getByLabel("Name", { exact: true }).fill("company-days");
  await page.getByLabel("Days", { exact: true }).fill(`${year}-06-31`);
  await page.getByText(`${year}-06-31`).filter({ visible: true }).last().waitFor(); // the server's words at the field
  await page.getByLabel("Days", { exact: true }).fill(`${year}-06-30`);
  await page.getByLabel("File", { exact: true }).setInputFiles({ name: "days.ics", mimeType: "text/calendar", buffer: Buffer.from(ics) });
  await page.getByText("It would hold 3 days").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: `2 of 3 days are in ${year}` }).waitFor();
  await page.getByRole("button", { name: "List" }).click();
  await page.getByText(fifth).waitFor();
  await page.getByText("No schedule names it").waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByLabel("Type company-days to confirm").fill("company-days");
  await page.getByRole("button", { name: "Delete it" }).click();
  await page.getByText("The calendar company-days is deleted.").first().waitFor();
  await page.close();
});

test("a change shows whose ticks move, and a change that somebody else made meanwhile", async () => {
  const page = await open("/demo/calendars/us-holidays");
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Days", { exact: true }).fill("2026-11-26\n2026-12-25\n2027-01-01\n2090-02-15");
  await page.getByText("active schedules name the calendar").waitFor();
  const other = await open("/demo/calendars/us-holidays");
  await other.getByRole("button", { name: "Change" }).click();
  await other.getByLabel("Days", { exact: true }).fill("2026-12-25\n2027-01-01");
  await other.getByText("Removed 1:").waitFor();
  await other.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await other.getByText("The calendar us-holidays is saved.").first().waitFor();
  await other.close();
  await page.getByText(/of 2 days are in/).waitFor(); // the page behind the dialog has read theirs; the dialog began before
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("Somebody changed it since you began").waitFor();
  await page.getByRole("button", { name: "Replace theirs" }).click();
  await page.getByText("The calendar us-holidays is saved.").first().waitFor();
  await page.close();
});

test("the schedules that name a calendar are listed, and it cannot be deleted", async () => {
  const page = await open("/demo/calendars/us-holidays");
  await page.getByRole("link", { name: /user_101/ }).waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByLabel("Type us-holidays to confirm").fill("us-holidays");
  await page.getByRole("button", { name: "Delete it" }).click();
  await page.getByText(/30 schedules name the calendar/).waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("link", { name: "In the list of schedules" }).click();
  await page.getByRole("link", { name: /user_101/ }).waitFor();
  await page.getByRole("link", { name: /user_100/ }).waitFor({ state: "detached" });
  await page.close();
});
