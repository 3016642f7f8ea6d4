import { expect, test } from "vitest";
import { looksWell, open, server, useBrowser } from "../browser";
import { Api } from "../fixture";

useBrowser();
looksWell("endpoints", "/demo/endpoints", "billing-hook");
looksWell("endpoint", "/demo/endpoints/billing-hook", "Last answers");
looksWell("new endpoint", "/demo/endpoints", "billing-hook", async (page) => {
  await page.getByRole("button", { name: "New endpoint" }).click();
  await page.getByRole("dialog").waitFor();
});

test("a test shows the answer as text, and the state is switched", async () => {
  const page = await open("/demo/endpoints/billing-hook");
  await page.getByRole("button", { name: "Send a test" }).click();
  await page.getByText("It refused the tick").waitFor();
  expect(await page.locator("main script").count()).toBe(0);
  await page.getByRole("button", { name: "Hold" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Hold" }).click();
  await page.getByText("The endpoint is held.").first().waitFor();
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Enable" }).click();
  await page.getByText("The endpoint is enabled.").first().waitFor();
  await page.close();
});

test("an endpoint is made, changed, given a new secret and deleted", async () => {
  const page = await open("/demo/endpoints");
  await page.getByRole("button", { name: "New endpoint" }).click();
  await page.getByLabel("Name").fill("fresh");
  await page.getByLabel("Address").fill("http://127.0.0.1:9/ticks");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/^whsec_/).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  await page.getByRole("link", { name: "fresh" }).click();
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Ticks in a request").fill("50");
  expect(await page.getByLabel("Ramp").isDisabled()).toBe(true);
  await page.getByLabel("Ticks a second").fill("20");
  await page.getByLabel("Ramp").fill("soon");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").getByRole("alert").waitFor();
  expect(await page.getByLabel("Ramp").getAttribute("aria-invalid")).toBe("true");
  await page.getByLabel("Ramp").fill("2m");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("up to 50 ticks a request").waitFor();
  await page.getByText("20 ticks a second, ramp 2m").waitFor();
  await page.getByRole("button", { name: "Rotate secret" }).click();
  await page.getByRole("button", { name: "Make the new secret" }).click();
  await page.getByText(/^whsec_|Rotate again all the same/).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByLabel(/Type fresh/).fill("fresh");
  await page.getByRole("button", { name: "Delete it" }).click();
  await page.getByRole("heading", { name: "Endpoints", level: 1 }).waitFor();
  await page.getByRole("link", { name: "fresh" }).waitFor({ state: "detached" }); // until it is read again, the list is the one of before
  await page.close();
});

test("a change of an endpoint that somebody else made meanwhile is shown before it is replaced", async () => {
  const at = "/v1/endpoints/contested";
  const api = new Api(server());
  await api.put(at, { url: "http://127.0.0.1:9/ticks" });
  const page = await open("/demo/endpoints/contested");
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Ticks a second").fill("20");
  await api.put(at, { url: "http://127.0.0.1:9/ticks", batch: 7 });
  await page.getByText("up to 7 ticks a request").waitFor(); // the page behind the dialog has read theirs; the dialog began before
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("Somebody changed it since you began").waitFor();
  await page.getByRole("dialog").getByText("/batch").waitFor();
  await page.getByRole("button", { name: "Replace theirs" }).click();
  await page.getByText("20 ticks a second").waitFor();
  await page.getByText("up to 7 ticks a request").waitFor({ state: "detached" });
  await api.delete(at);
  await page.close();
});
