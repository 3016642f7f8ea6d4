import { computed, signal } from "@preact/signals";
import { type Answer, Problem, read, send } from "./call";
import { ended } from "./live";
import { client } from "./query";

export type Self = Answer<"/v1/self">;

/** Who is signed in; null: nobody; undefined: not known yet. */
export const self = signal<Self | null | undefined>(undefined);

/** The name in the first segment of the address: the tenant's, or "platform" for the operator of the service. */
export const home = computed(() => (self.value ? (self.value.tenant ?? "platform") : ""));

/** Reads who is signed in. */
export async function recognise(): Promise<void> {
  try {
    self.value = await read("/v1/self");
    ended.value = false;
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) throw error;
    self.value = null;
    ended.value = false;
  }
}

/** Signs in with an API key or a token. Throws a Problem if it is refused. */
export async function signIn(credential: string): Promise<void> {
  const name = credential.startsWith("carillon_key_") ? "api_key" : "token";
  await send("/console/session", "POST", { "Content-Type": "application/json" }, JSON.stringify({ [name]: credential }));
  client.clear();
  await recognise();
}

/** Ends the session in this browser. */
export async function signOut(): Promise<void> {
  await send("/console/session", "DELETE");
  client.clear();
  self.value = null;
}

export type Scope = "schedules:read" | "schedules:write" | "ticks:work" | "endpoints:write" | "subjects:erase" | "tenant:read" | "tenant:admin" | "platform:admin";

/** Returns why the session may not do what needs the scope; "" if it may. */
export function refused(scope: Scope): string {
  const scopes = self.value?.scopes ?? [];
  const implied = (scope === "schedules:read" && scopes.includes("tenant:read")) || (scope !== "platform:admin" && scopes.includes("tenant:admin"));
  return implied || scopes.includes(scope) ? "" : `Your key does not have the scope ${scope}.`;
}

/** Whether the session may see payloads: a key that only looks may not. */
export const payloads = computed(() => !refused("schedules:read") && (self.value?.scopes ?? []).some((s) => s !== "tenant:read"));
