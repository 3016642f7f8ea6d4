import type { Route } from "../../routes";

export default [
  { path: "/zones", title: "Zones", page: () => import("./page"), rail: { order: 91, icon: "zones", text: "Zones" } },
  { path: "/dst", title: "Clock changes", page: () => import("./dst"), rail: { order: 92, icon: "forecast", text: "Clock changes" } },
] satisfies Route[];
