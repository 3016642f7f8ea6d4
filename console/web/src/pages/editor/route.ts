import type { Route } from "../../routes";

export default [
  { path: "/schedules/new", title: "New schedule", page: () => import("./page") },
  { path: "/schedules/:workflow/:key/edit", title: "Edit a schedule", page: () => import("./page") },
] satisfies Route[];
