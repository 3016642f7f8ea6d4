import type { Route } from "../../routes";

export default { path: "/schedules/:workflow/:key", title: "Schedule", page: () => import("./page") } satisfies Route;
