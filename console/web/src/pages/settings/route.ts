import type { Route } from "../../routes";

export default { path: "/settings", title: "Settings", page: () => import("./page"), rail: { order: 130, icon: "settings", text: "Settings" } } satisfies Route;
