import "./style.css";
import "./theme";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ErrorBoundary, LocationProvider, lazy, Route, Router, useLocation } from "preact-iso";
import { ended } from "./live";
import { Action, Empty, Head, Problem } from "./parts/basic";
import { Dialog } from "./parts/dialog";
import { routes } from "./routes";
import { home, recognise, self } from "./session";
import { Shell } from "./shell";
import { SignIn } from "./sign-in";

const pages = routes.map((r) => ({ path: `/console/:tenant${r.path === "/" ? "" : r.path}`, component: lazy(r.page) }));

function App() {
  const { path, query, route, url } = useLocation();
  const [error, fail] = useState<unknown>(null);
  useEffect(() => {
    recognise().catch(fail);
  }, []);
  const who = self.value;
  useEffect(() => {
    if (who === null && path !== "/console/sign-in") route(`/console/sign-in?to=${encodeURIComponent(url)}`, true);
    if (who && (path === "/console" || path === "/console/sign-in")) route(own(query.to), true);
  }, [who, path, route, url]);
  if (error) return <Alone error={error} />;
  if (who === undefined) return null;
  if (who === null || path === "/console/sign-in") return <SignIn />;
  const segment = path.split("/")[2];
  if (segment === undefined || path === "/console") return null;
  return (
    <Shell>
      {decode(segment) === home.value ? (
        <ErrorBoundary onError={fail}>
          <Router onRouteChange={() => document.getElementById("main")?.scrollIntoView({ block: "nearest" })}>
            {pages.map((p) => (
              <Route key={p.path} path={p.path} component={p.component} />
            ))}
            <Route default component={NotFound} />
          </Router>
        </ErrorBoundary>
      ) : (
        <Foreign name={decode(segment)} />
      )}
      {ended.value && (
        <Dialog title="Your session has ended" verb="Sign in" onClose={() => (ended.value = false)} onSend={async () => (self.value = null)}>
          <p>The key expired or was revoked, or nobody used the session for 12 hours. Sign in, and you come back to this page.</p>
        </Dialog>
      )}
    </Shell>
  );
}

/** Where the user wanted to go, if that is a page of the console; else the overview. */
function own(to?: string): string {
  return to?.startsWith("/console/") && !to.startsWith("/console/sign-in") ? to : `/console/${encodeURIComponent(home.value)}/`;
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** A link of another tenant: the session shows only its own. */
function Foreign({ name }: { name: string }) {
  return (
    <>
      <Head title="Another tenant" />
      <Empty title={`This page belongs to ${name}, and you are in ${home.value}`} action={<Action href={`/console/${encodeURIComponent(home.value)}/`}>Go to {home.value}</Action>}>
        A session shows one tenant. To see this page, sign out and sign in with a key of that tenant.
      </Empty>
    </>
  );
}

function NotFound() {
  return (
    <>
      <Head title="No such page" />
      <Empty title="There is no page at this address" action={<Action href={`/console/${encodeURIComponent(home.value)}/`}>Overview</Action>}>
        Check the address, or search with Ctrl K.
      </Empty>
    </>
  );
}

function Alone({ error }: { error: unknown }) {
  return (
    <div class="sign-in">
      <div class="panel">
        <div class="body">
          <Problem error={error} retry={() => location.reload()} />
        </div>
      </div>
    </div>
  );
}

const root = document.getElementById("app");
if (root) {
  render(
    <LocationProvider scope="/console">
      <App />
    </LocationProvider>,
    root,
  );
}
