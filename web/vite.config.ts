import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Relative URLs: the page works below any path of a proxy.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/penstock/dashboard",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rollupOptions: { input: { index: "index.html", docs: "docs.html" } },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8080", "/openapi.json": "http://127.0.0.1:8080" } },
});
