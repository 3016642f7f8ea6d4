import type { Route } from "../../routes";

export default [
  { path: "/operations", title: "Operations", page: () => import("./page"), rail: { order: 100, icon: "operations", text: "Operations", group: "Tenant" } },
  { path: "/operations/:id", title: "Operation", page: () => import("./operation") },
] satisfies Route[];
