import type { Route } from "../../routes";

export default { path: "/audit", title: "Audit", page: () => import("./page"), rail: { order: 110, icon: "audit", text: "Audit" } } satisfies Route;
