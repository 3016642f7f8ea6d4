import type { Route } from "../../routes";

export default { path: "/forecast", title: "Forecast", page: () => import("./page"), rail: { order: 20, icon: "forecast", text: "Forecast" }, key: "f" } satisfies Route;
