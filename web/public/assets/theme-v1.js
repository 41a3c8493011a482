// Runs before the first paint, so that a dark page never flashes white.
(function () {
  var chosen = null;
  try { chosen = localStorage.getItem("penstock.theme"); } catch (error) { /* storage is blocked */ }
  var dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
