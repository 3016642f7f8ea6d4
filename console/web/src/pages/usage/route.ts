import type { Route } from "../../routes";

export default { path: "/usage", title: "Usage", page: () => import("./page"), rail: { order: 120, icon: "usage", text: "Usage" } } satisfies Route;
