import type { Route } from "../../routes";

export default [
  { path: "/ticks", title: "Ticks", page: () => import("./page"), rail: { order: 60, icon: "ticks", text: "Ticks" }, key: "t" },
  { path: "/ticks/:id", title: "Tick", page: () => import("./tick") },
] satisfies Route[];
