import { defineConfig } from "vite";

export default defineConfig({
  resolve: { alias: { "react-router-dom-v5-compat": "react-router-dom" } },
  define: { "process.env.NODE_ENV": JSON.stringify("production"), global: "globalThis" },
  oxc: { jsx: { runtime: "automatic" } },
  build: { minify: false, sourcemap: false, chunkSizeWarningLimit: 20000, reportCompressedSize: false },
});
