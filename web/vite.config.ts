import { svelte } from "@sveltejs/vite-plugin-svelte";
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// The page compares it with the version of the server that answers.
const version = /^version = "(.+)"/m.exec(readFileSync(new URL("../pyproject.toml", import.meta.url), "utf8"))?.[1] ?? "";

// Redoc shows a logo of its maker's server. This page loads nothing from elsewhere.
const withoutForeignLogo: Plugin = {
  name: "without-foreign-logo",
  generateBundle(_, bundle) {
    for (const file of Object.values(bundle)) {
      if (file.type === "asset" && file.fileName.includes("redoc")) {
        file.source = file.source.toString().replaceAll("https://cdn.redoc.ly/redoc/logo-mini.svg", "./assets/icon-v1.svg");
      }
    }
  },
};

// Relative URLs: the page works below any path of a proxy.
export default defineConfig({
  base: "./",
  define: { __VERSION__: JSON.stringify(version) },
  plugins: [svelte(), withoutForeignLogo],
  build: {
    outDir: "../src/penstock/dashboard",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2000,
    rollupOptions: { input: { index: "index.html", docs: "docs.html" } },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8080", "/openapi.json": "http://127.0.0.1:8080" } },
});
