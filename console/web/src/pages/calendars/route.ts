import type { Route } from "../../routes";

export default [
  { path: "/calendars", title: "Calendars", page: () => import("./page"), rail: { order: 90, icon: "calendars", text: "Calendars" }, key: "c" },
  { path: "/calendars/:name", title: "Calendar", page: () => import("./calendar") },
] satisfies Route[];
