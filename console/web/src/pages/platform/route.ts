import type { Route } from "../../routes";

export default [
  { path: "/overview", title: "Engine", page: () => import("./page"), rail: { order: 200, icon: "platform", text: "Engine", platform: true } },
  { path: "/tenants", title: "Tenants", page: () => import("./tenants"), rail: { order: 210, icon: "subjects", text: "Tenants", platform: true } },
  { path: "/changes", title: "Changes to tenants", page: () => import("./changes"), rail: { order: 220, icon: "audit", text: "Audit", platform: true } },
] satisfies Route[];
