import { useEffect, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { Icon } from "./icons";
import { Action, Command, Field, Problem } from "./parts/basic";
import { signIn } from "./session";
import "./shell.css";

/** The way in: an API key or a token becomes a cookie that no script can read. The App then leads on to where the user wanted to go. */
export function SignIn() {
  const { query } = useLocation();
  const [credential, set] = useState("");
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Carillon";
  }, []);
  const send = async (e: Event) => {
    e.preventDefault();
    if (!credential.trim() || busy) return;
    work(true);
    fail(null);
    try {
      await signIn(credential.trim());
    } catch (problem) {
      fail(problem);
    }
    work(false);
  };
  const insecure = !window.isSecureContext;
  return (
    <main class="sign-in">
      <section class="panel">
        <form class="body" onSubmit={send}>
          <h1>
            <Icon name="bell" />
            Carillon
          </h1>
          {query.why === "code" && <p class="note amber">That link was used already, or is older than a minute. Run the command again, or sign in here.</p>}
          {query.why === "elsewhere" && <p class="note amber">Another page opened the link, so it signs nobody in. Paste the address that the command printed into the address bar.</p>}
          {insecure ? (
            <p class="note amber" role="alert">
              This page came without https, so your key could be read on its way. Open the console by https, or on the machine itself at http://127.0.0.1.
            </p>
          ) : (
            <>
              <Field label="API key or token" hint="It goes to this server only, which keeps it in a cookie that no script can read. A session ends 12 hours after its last use.">
                {(p) => (
                  <input {...p} type="password" name="credential" autocomplete="off" spellcheck={false} placeholder="carillon_key_…" value={credential} onInput={(e) => set(e.currentTarget.value)} />
                )}
              </Field>
              <Problem error={error} />
              <div class="buttons">
                <Action type="submit" kind="main" why={busy ? "It is being checked." : ""}>
                  {busy ? "Signing in…" : "Sign in"}
                </Action>
                <a href="/docs">Reference of the API</a>
              </div>
              <details>
                <summary>Where do I get one?</summary>
                <div class="stack">
                  <p class="dim">An operator of your tenant makes keys under Settings. With carillon dev on this machine:</p>
                  <Command text="carillon open" />
                </div>
              </details>
            </>
          )}
        </form>
      </section>
    </main>
  );
}
