// Light and dark. The system decides until the viewer chooses.
export function toggleTheme(): void {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("penstock.theme", next);
  } catch {
    // The choice lasts as long as the page.
  }
}
