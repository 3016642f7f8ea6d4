import type { Route } from "../../routes";

export default [
  { path: "/workflows", title: "Workflows", page: () => import("./page"), rail: { order: 50, icon: "workflows", text: "Workflows" }, key: "w" },
  { path: "/workflows/:name", title: "Workflow", page: () => import("./workflow") },
] satisfies Route[];
