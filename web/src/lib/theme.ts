// Light and dark. The system decides until the viewer chooses.
const KEY = "penstock.theme";

/** Follows the system while the page is open. */
export function followSystem(): void {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
    try {
      if (localStorage.getItem(KEY)) return;
    } catch {
      // Nothing can be kept, so nothing was chosen.
    }
    document.documentElement.dataset.theme = matches ? "dark" : "light";
  });
}

export function toggleTheme(): void {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // The choice lasts as long as the page.
  }
}
