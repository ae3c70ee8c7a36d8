import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, RouterProvider } from "@tanstack/react-router";
import { act, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { queryClient } from "@/api/polling";
import { ADMIN, VIEWER } from "@/testing/caller";
import { serve } from "@/testing/pages";
import { render } from "@/testing/render";
import { makeRouter } from "./router";

const at = (address: string) => makeRouter(createMemoryHistory({ initialEntries: [address] }));

/** The view of the address's page, as the page reads it. */
function viewOf(address: string): unknown {
  const router = at(address);
  return JSON.parse(JSON.stringify(router.matchRoutes(router.latestLocation).at(-1)?.search));
}

const ID = "01a201d6-041d-7787-80c4-00a52f02a2d6";

it.each([
  ["/jobs?state=done", {}],
  ["/jobs?state=queued,running", { state: ["queued", "running"] }],
  ["/jobs?state=running&state=gone", { state: ["running"] }],
  ["/jobs?order=desc&label=foo&cursor=x&page=2", {}],
  ["/jobs?filter=true&project=64", { filter: "true", project: "64" }],
  [
    "/jobs?sort=-created&columns=gpus,lr&group=label:team&open=a,b",
    { columns: "gpus,lr", group: "label:team", open: "a,b" },
  ],
  [`/jobs?cursor=${ID}&owner=%5B%5D&node=%7B%22a%22%3A1%7D&project=null`, { cursor: ID }],
  [`/jobs?filter=a%00b&sort=name&owner=${"x".repeat(258)}`, { sort: "name" }],
  ["/queue?project=nlp&owner=ada", { project: "nlp" }],
  ["/jobs/gpt?tab=log&smoothing=much&axis=days&spec=whole&other=1", {}],
  ["/jobs/gpt?tab=logs&attempt=0&rank=-2&stream=out&line=7&search=nan", { tab: "logs", search: "nan" }],
  ["/jobs/gpt?tab=configuration&spec=half&zoom=step:9:1&y=a&log=%7B%7D", { tab: "configuration" }],
  [
    "/compare?jobs=a,b&hidden=c&metric=loss&sort=x&smoothing=2&axis=step",
    { jobs: "a,b", metric: "loss", axis: "step" },
  ],
  ["/compare?jobs=%7B%22a%22%3A1%7D&clip=%7B%7D", {}],
  ["/submit?clone=%7B%7D&from=7&x=1", {}],
  ["/submit?clone=12345678&from=true", { clone: "12345678", from: "true" }],
])("the router reads %s as %j", (address, view) => {
  expect(viewOf(address)).toEqual(view);
});

function show(router: ReturnType<typeof at>) {
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router as never} />
    </QueryClientProvider>,
  );
}

it("shows the list in place of a failed page, and names what it leaves out of a mistyped address", async () => {
  const caller = { name: "ada", rights: [], is_alone: true };
  const requests = serve(({ path }) => ({
    body: path === "/v1/session" ? caller : { items: [], next_cursor: null, jobs: [] },
  }));
  const router = at("/jobs?state=done&state=failed&order=desc&cursor=x");
  show(router);
  expect(await screen.findByText("state=done, order=desc, cursor=x")).toBeTruthy();
  expect(await screen.findByText("No job matches this filter")).toBeTruthy();
  const asked = requests.filter(({ query }) => query.has("state")).map(({ query }) => query.toString());
  expect(new Set(asked)).toEqual(new Set(["state=failed&sort=-created&totals=true&limit=50"]));
  expect(router.state.location.search).toEqual({ state: ["failed"] });
  screen.getByRole("button", { name: "Close" }).click();
  await expect.poll(() => screen.queryByText(/state=done/)).toBeNull();
});

it("keeps a page that was chosen while the list learns whose jobs it shows", async () => {
  serve(() => ({ body: { items: [], next_cursor: null, jobs: [] } }));
  const router = at("/jobs");
  show(router);
  await screen.findByText("No jobs yet");
  await act(async () => {
    void router.navigate({ to: "/submit" });
    queryClient.setQueriesData({ queryKey: ["people", "caller"] }, { ...ADMIN, is_alone: false });
  });
  expect(await screen.findByRole("heading", { name: "New job" })).toBeTruthy();
});

it("links a viewer to no page that is of no use, and lists no key of one", async () => {
  queryClient.clear();
  serve(({ path }) => ({ body: path === "/v1/session" ? VIEWER : { items: [], next_cursor: null, jobs: [] } }));
  show(at("/jobs"));
  (await screen.findByRole("button", { name: /vera/ })).click();
  const entries = await screen.findAllByRole("menuitem");
  expect(entries.map((entry) => entry.textContent)).toEqual(["Account", "Tokens", "Projects", "Settings"]);
  expect(screen.queryByRole("link", { name: "New job" })).toBeNull();
  screen.getByRole("button", { name: "Keyboard shortcuts" }).click();
  const help = await screen.findByRole("dialog", { name: "Keyboard shortcuts" });
  expect(help.textContent).toContain("go to Tokens");
  for (const words of ["go to New job", "go to People", "go to Audit", "submit"]) {
    expect(help.textContent).not.toContain(words);
  }
});

it("asks nothing for a page whose right the caller does not have, and names the right", async () => {
  queryClient.clear();
  const requests = serve(({ path }) => ({ body: path === "/v1/session" ? VIEWER : { items: [], next_cursor: null } }));
  show(at("/audit"));
  expect(await screen.findByText(/needs the right audit.read/)).toBeTruthy();
  expect(requests.filter(({ path }) => path === "/v1/audit")).toEqual([]);
});
