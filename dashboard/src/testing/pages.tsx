/** Pages in tests: with a router in memory, and a service that is a function. */
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import {
  createMemoryHistory,
  createRootRoute,
  createRoute,
  createRouter,
  Outlet,
  RouterProvider,
} from "@tanstack/react-router";
import type { ReactNode } from "react";
import { vi } from "vitest";
import { setUpClient } from "@/api/client";
import { render } from "@/testing/render";
import { ADMIN } from "./caller";

export interface Asked {
  method: string;
  path: string;
  query: URLSearchParams;
  /** Document of the request; undefined without one. */
  body?: unknown;
}

/** What the service answers: a document, or a refusal with its status. The caller is `ADMIN` where it says nothing else. */
export type Service = (asked: Asked) => { status?: number; body: unknown };

// Once: what it registers stays with the client, and a second time would be told what the first one made of an error.
setUpClient();
// The router asks for it; jsdom has no such thing.
window.scrollTo = () => {};

/** The service from here on; every request is in the list that comes back. */
export function serve(service: Service): Asked[] {
  const requests: Asked[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const url = new URL(request.url);
    const asked: Asked = { method: request.method, path: url.pathname, query: url.searchParams };
    const sent = request.headers.get("Content-Type") === "application/json" ? await request.clone().text() : "";
    if (sent !== "") asked.body = JSON.parse(sent);
    requests.push(asked);
    const { status = 200, body: given } = service(asked);
    const body = status === 200 && asked.path === "/v1/session" ? { ...ADMIN, ...(given as object) } : given;
    // An answer without a document has no body at all: a 204 may have none.
    return new Response(body === null ? null : JSON.stringify(body), {
      status,
      headers: { "Content-Type": "application/json" },
    });
  });
  return requests;
}

/** Show `Page` at `path`; the pages that it links to are empty. */
export function open(
  path: "/" | "/jobs" | "/queue" | "/cluster",
  Page: () => ReactNode,
  search = "",
  validateSearch: (search: Record<string, unknown>) => object = (all) => all,
) {
  const root = createRootRoute({ component: Outlet });
  const others = ["/", "/jobs", "/queue", "/cluster", "/jobs/$job", "/compare", "/submit", "/projects"].filter(
    (other) => other !== path,
  );
  const router = createRouter({
    routeTree: root.addChildren([
      createRoute({ getParentRoute: () => root, path, component: Page, validateSearch }),
      ...others.map((other) => createRoute({ getParentRoute: () => root, path: other, component: () => null })),
    ]),
    history: createMemoryHistory({ initialEntries: [path + search] }),
  });
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <RouterProvider router={router as never} />
    </QueryClientProvider>,
  );
  return router;
}
