import { expect, test } from "vitest";
import { open, server, useBrowser } from "../browser";

useBrowser();

/** Makes an API key with these scopes. */
async function makeKey(...scopes: string[]): Promise<{ id: string; key: string }> {
  return (await api("POST", "/v1/admin/api-keys", { name: `for ${scopes.join(" ")}`, scopes })) as { id: string; key: string };
}

async function api(method: string, path: string, body?: unknown, token = server().token): Promise<unknown> {
  const answer = await fetch(server().url + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.status === 204 ? undefined : answer.json();
}

test("who is not signed in signs in with a key, comes back to the page, and signs out", async () => {
  const { key } = await makeKey("tenant:admin");
  const page = await open("/demo/schedules?workflow=reminders", { as: "" });
  await page.getByLabel("API key or token").fill("carillon_key_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").filter({ hasText: "request" }).waitFor();
  await page.getByLabel("API key or token").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL("**/demo/schedules?workflow=reminders");
  await page.getByRole("heading", { name: "Schedules" }).waitFor();
  expect(await page.evaluate(() => document.cookie + JSON.stringify(localStorage))).not.toContain("carillon");
  await page.getByRole("button", { name: "You and this page" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key or token").waitFor();
  await page.goto("/console/demo/schedules");
  await page.getByLabel("API key or token").waitFor();
  await page.close();
});

test("a session ends within five seconds after its key is revoked", async () => {
  const { id, key } = await makeKey("tenant:admin");
  const page = await open("/demo/", { as: key });
  await page.getByText("Needs attention").waitFor();
  await api("DELETE", `/v1/admin/api-keys/${id}`);
  const began = Date.now();
  const status = async () => (await page.request.get("/v1/self", { headers: { "Carillon-Console": "1" } })).status();
  await expect.poll(status, { timeout: 5000, interval: 100 }).toBe(401);
  await page.getByText("Your session has ended").waitFor({ timeout: 20_000 });
  expect(Date.now() - began).toBeLessThan(15_000); // 5 s, and the next request of the page
  await page.close();
});

test("a key that only looks sees no payload, and actions that tell why they are off", async () => {
  const { key } = await makeKey("tenant:read");
  const page = await open("/demo/schedules/reminders/user_123%2Fwater?tab=payload", { as: key });
  await page.getByText("Your key shows no payloads").waitFor();
  const pause = page.getByRole("button", { name: "Pause", exact: true });
  expect(await pause.getAttribute("aria-disabled")).toBe("true");
  expect(await pause.getAttribute("title")).toContain("schedules:write");
  await pause.click({ force: true });
  expect(await page.getByRole("dialog").count()).toBe(0);
  await page.close();
});

test("a link of another tenant says so", async () => {
  const page = await open("/globex/schedules/reminders/x");
  await page.getByText("This page belongs to globex, and you are in demo").waitFor();
  await page.close();
});

test("a code in the address signs in once, and leaves no secret there", async () => {
  const { path } = (await api("POST", "/console/code")) as { path: string };
  const page = await open(path.replace("/console", ""), { as: "" });
  await page.getByText("Needs attention").waitFor();
  expect(page.url()).not.toContain("code");
  await page.goto(path);
  expect(page.url()).toContain("why=code");
  await page.close();
});

test("the audit says that a change came through the console, and whose key it was", async () => {
  const { id, key } = await makeKey("tenant:admin");
  const page = await open("/demo/schedules/daily-digest/user_152", { as: key });
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByText("Paused.").first().waitFor();
  const audit = (await api("GET", `/v1/admin/audit?actor=${id}&action=schedule.pause`)) as { items: { through: string }[] };
  expect(audit.items.map((e) => e.through)).toEqual(["console"]);
  await page.close();
});

test("markup from anywhere stays text: a text cannot become a script", async () => {
  const page = await open("/demo/");
  const refused = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<img src=x>";
      return false;
    } catch {
      return true;
    }
  });
  expect(refused).toBe(true);
  await page.close();
});

test("keys go to pages, the palette finds a schedule, and the clock is switched", async () => {
  const page = await open("/demo/");
  await page.getByText("Needs attention").waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.waitForURL("**/demo/schedules");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search or go to" }).fill("user_155");
  await page.getByRole("option", { name: /daily-digest\/user_155/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/daily-digest/user_155");
  const next = page.locator("dd time").first();
  await next.waitFor();
  const before = await next.textContent();
  await page.locator("body").press("z");
  await expect.poll(() => next.textContent()).not.toBe(before);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.close();
});

test("without https outside of loopback the sign-in says why it refuses", async () => {
  const page = await open("/sign-in", { as: "" });
  await page.goto(`${server().url.replace("127.0.0.1", "carillon.test")}/console/sign-in`);
  await page.getByRole("alert").filter({ hasText: "without https" }).waitFor();
  expect(await page.getByLabel("API key or token").count()).toBe(0);
  await page.close();
});
