import type { Route } from "../../routes";

export default [
  { path: "/endpoints", title: "Endpoints", page: () => import("./page"), rail: { order: 80, icon: "endpoints", text: "Endpoints" }, key: "e" },
  { path: "/endpoints/:name", title: "Endpoint", page: () => import("./endpoint") },
] satisfies Route[];
