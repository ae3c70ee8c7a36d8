import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// `npm run dev` shows the pages of a service that runs on this machine: LOCKSTEP_URL names another.
const service = process.env.LOCKSTEP_URL ?? "http://127.0.0.1:8470";

// A mock of a module is for the file that makes it: others have imported the real one.
const HERE = fileURLToPath(new URL("./", import.meta.url));
const PAGES = globSync("src/**/*.test.tsx", { cwd: HERE });
const MOCKING = PAGES.filter((file) => readFileSync(HERE + file, "utf8").includes("vi.mock("));
const DOCUMENT = { environment: "jsdom", setupFiles: ["src/testing/setup.ts"] };

const OVERLAYS =
  /@floating-ui|react-remove-scroll|react-style-singleton|use-sidecar|use-callback-ref|@mantine\/core\/esm\/(utils\/Floating|components\/(Popover|Menu|Modal|ModalBase|Overlay|Portal|Transition|FocusTrap|ScrollArea|CloseButton|ActionIcon|Loader|Paper|UnstyledButton))\//;

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    outDir: "../api/pages",
    emptyOutDir: true,
    target: "es2022",
    // Browsers that do not preload modules load them a moment later.
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
    rolldownOptions: {
      output: {
        // What most pages share is one file: seventy small ones take as many requests, and compress worse. Menus, dialogs
        // and fields are apart: no page needs them for its first paint.
        codeSplitting: {
          groups: [
            { name: "first", tags: ["$initial"] },
            { name: "hooks", test: /@mantine\/hooks\/esm\/use-(click-outside|debounced-value|media-query)\// },
            { name: "overlays", test: OVERLAYS },
            {
              name: "fields",
              test: /@mantine\/core\/esm\/components|react-number-format|src\/components\/mantine\.ts/,
            },
            { name: "shared", test: /node_modules/, minShareCount: 4 },
            { name: "common", test: /src/, minShareCount: 4 },
          ],
        },
      },
    },
  },
  server: { proxy: { "/v1": service, "/readyz": service, "/openapi.json": service } },
  test: {
    // For a machine that is busy with other tests.
    testTimeout: 120_000,
    projects: [
      // Making a document takes longer than most tests of logic, which need none. Files that share their imports take half
      // the time of files that do not.
      { extends: true, test: { name: "logic", environment: "node", isolate: false, include: ["src/**/*.test.ts"] } },
      { extends: true, test: { name: "pages", isolate: false, include: PAGES, exclude: MOCKING, ...DOCUMENT } },
      { extends: true, test: { name: "mocks", include: MOCKING, ...DOCUMENT } },
    ],
  },
});
