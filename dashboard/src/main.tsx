import "./app/mantine";
import "./app/tokens.css";
import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { setUpClient, tokenForCode } from "./api/client";
import { watchConnection } from "./api/connection";
import { queryClient } from "./api/polling";
import { signInFromAddress } from "./api/token";
import { router } from "./app/router";
import { theme } from "./app/theme";
import { watchUpgrades } from "./app/upgrade";

setUpClient();
await signInFromAddress(tokenForCode);
watchUpgrades();
watchConnection(queryClient.getQueryCache());

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element with the id root");
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} defaultColorScheme="auto" deduplicateCssVariables={false}>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
