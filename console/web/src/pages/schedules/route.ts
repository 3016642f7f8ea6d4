import type { Route } from "../../routes";

export default { path: "/schedules", title: "Schedules", page: () => import("./page"), rail: { order: 30, icon: "schedules", text: "Schedules" }, key: "s" } satisfies Route;
