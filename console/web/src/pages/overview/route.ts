import type { Route } from "../../routes";

export default { path: "/", title: "Overview", page: () => import("./page"), rail: { order: 10, icon: "overview", text: "Overview" }, key: "o" } satisfies Route;
