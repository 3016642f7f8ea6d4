import { generateKeyPairSync, sign } from "node:crypto";
import { Api } from "./fixture";
import type { Ready } from "./server";

const scopes = ["tenant:admin", "subjects:erase"];
const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Makes a tenant with an issuer of its own, and returns an API key that may do everything in it. */
export async function makeTenant(ready: Ready, name: string, quotas: Record<string, number> = {}): Promise<Api> {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const issuer = `https://${name}.example`;
  const jwk = { ...publicKey.export({ format: "jwk" }), kid: name, alg: "EdDSA" };
  await new Api({ url: ready.url, token: ready.platform_token }).put(`/v1/platform/tenants/${name}`, { quotas, issuers: [{ issuer, keys: [jwk], algorithms: ["EdDSA"] }] });
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: issuer, aud: "carillon", sub: "ann", tenant: name, scope: scopes.join(" "), iat: now, exp: now + 600 };
  const text = `${part({ alg: "EdDSA", typ: "JWT", kid: name })}.${part(claims)}`;
  const token = `${text}.${sign(null, Buffer.from(text), privateKey).toString("base64url")}`;
  const made = (await new Api({ url: ready.url, token }).post("/v1/admin/api-keys", { name: "ann", scopes })) as { key: string };
  return new Api({ url: ready.url, token: made.key });
}
