import { defineConfig } from "@hey-api/openapi-ts";

// Types and functions for every address of the API. `make client` writes them; `make check` says when they are stale.
export default defineConfig({
  input: "./openapi.json",
  output: { path: process.env.CLIENT_FOLDER ?? "./src/api/generated" },
  plugins: ["@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"],
});
