import type { Route } from "../../routes";

export default [
  { path: "/subjects", title: "Subjects", page: () => import("./page"), rail: { order: 40, icon: "subjects", text: "Subjects" }, key: "k" },
  { path: "/subjects/:subject", title: "Subject", page: () => import("./subject") },
] satisfies Route[];
