import { until } from "../until";

const element = "element-6066-11e4-a52e-4f735466cecf"; // WebDriver's key of an element's id

/** A browser that a WebDriver server drives (W3C WebDriver 2). */
export class Driver {
  private constructor(private readonly session: string) {}

  /** Opens a browser at a server such as http://127.0.0.1:4444 (geckodriver, WebKitWebDriver). */
  static async open(server: string, options: Record<string, unknown>): Promise<Driver> {
    const { sessionId } = (await send("POST", `${server}/session`, { capabilities: { alwaysMatch: options } })) as { sessionId: string };
    return new Driver(`${server}/session/${sessionId}`);
  }

  close = () => send("DELETE", this.session);
  go = (url: string) => send("POST", `${this.session}/url`, { url });
  size = (width: number, height: number) => send("POST", `${this.session}/window/rect`, { width, height });
  screenshot = async () => Buffer.from((await send("GET", `${this.session}/screenshot`)) as string, "base64");

  /** Runs a function's body in the page. */
  run = <T>(script: string, ...args: unknown[]) => send("POST", `${this.session}/execute/sync`, { script, args }) as Promise<T>;

  /** Clicks, as a user does, the first visible element of a selector whose text has these words. */
  async click(selector: string, words = "") {
    const one = await this.find(selector, words);
    await send("POST", `${this.session}/element/${one}/click`, {});
  }

  async type(selector: string, text: string) {
    const one = await this.find(selector);
    await send("POST", `${this.session}/element/${one}/value`, { text });
  }

  /** Presses a key, with others held. Names are those of WebDriver's table, such as \uE007 for Enter. */
  async press(key: string, ...held: string[]) {
    const down = held.map((value) => ({ type: "keyDown", value }));
    const up = held.map((value) => ({ type: "keyUp", value })).reverse();
    const actions = [...down, { type: "keyDown", value: key }, { type: "keyUp", value: key }, ...up];
    await send("POST", `${this.session}/actions`, { actions: [{ type: "key", id: "keyboard", actions }] });
  }

  /** Waits until the page shows a text. */
  async shows(text: string, within = 20_000) {
    await until(() => this.run<boolean>("return document.body.innerText.includes(arguments[0])", text), within, `the page shows ${text}`);
  }

  private async find(selector: string, words = ""): Promise<string> {
    const script = "return [...document.querySelectorAll(arguments[0])].find((e) => e.offsetParent && e.innerText.includes(arguments[1]))";
    const matches: Record<string, string>[] = [];
    const there = async () => {
      const one = await this.run<Record<string, string> | null>(script, selector, words);
      return one !== null && matches.push(one) > 0;
    };
    await until(there, 20_000, `there is ${selector} ${words}`);
    return matches[0][element];
  }
}

async function send(method: string, url: string, body?: unknown): Promise<unknown> {
  const answer = await fetch(url, { method, body: body === undefined ? undefined : JSON.stringify(body) });
  const { value } = (await answer.json()) as { value: { error?: string; message?: string } };
  if (!answer.ok) throw new Error(`${method} ${url}: ${value.error}: ${value.message}`);
  return value;
}
