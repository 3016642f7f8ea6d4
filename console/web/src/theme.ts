import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const saved = () => {
  try {
    return (localStorage.getItem("theme") as Theme) ?? "system";
  } catch {
    return "system";
  }
};

/** Light, dark, or what the system says. */
export const theme = signal<Theme>(saved());

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  try {
    localStorage.setItem("theme", theme.value);
  } catch {
    // a browser without storage forgets the choice
  }
});
