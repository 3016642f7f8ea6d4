import type { Route } from "../../routes";

export default {
  path: "/dead-letters",
  title: "Dead letters",
  page: () => import("./page"),
  rail: { order: 70, icon: "dead", text: "Dead letters" },
  key: "d",
} satisfies Route;
