// SPDX-License-Identifier: Apache-2.0
import { defineConfig } from "vite";

// The page asks for /index.js and /index.html (from public/) and for everything else below /static/: the folder written
// here is what the server serves under that name, so all built files lie flat beside each other.
export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    outDir: "../src/stepscope/web/static",
    emptyOutDir: true,
    assetsDir: "",
    target: "es2022",
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    reportCompressedSize: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      input: { app: "src/app.tsx", standalone: "src/standalone.ts" },
      preserveEntrySignatures: "exports-only",
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "[name]-[hash].js",
        assetFileNames: "[name][extname]",
      },
    },
  },
  worker: { format: "es", rollupOptions: { output: { entryFileNames: "[name]-[hash].js" } } },
});
