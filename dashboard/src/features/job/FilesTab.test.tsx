import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import type { JobView, KeptFileView } from "@/api/generated";
import { VIEWER } from "@/testing/caller";
import { aJob } from "@/testing/jobs";
import { type Asked, serve } from "@/testing/pages";
import { render } from "@/testing/render";
import { FilesTab } from "./FilesTab";

const HOSTILE = '<img src=x onerror="alert(1)">\u202egnp.\n.pt';
const ENDED = aJob({ kind: "script", state: "succeeded", name: "mine" });

function aFile(path: string, bytes = 5): KeptFileView {
  const modified_at = "2026-11-22T12:00:00Z";
  return { path, bytes, sha256: "ab".repeat(32), modified_at, executable: false, attempt: 1 };
}

function show(
  all: KeptFileView[],
  job: JobView = ENDED,
  caller: object = {},
  asOf: string | null = null,
  match?: string,
): Asked[] {
  const asked = serve(({ method, path, query }) => {
    if (path === "/v1/session") return { body: caller };
    if (method === "DELETE") return { body: { files: 1, bytes: 5 } };
    if (!path.endsWith("/files")) return { body: "first\u001b[2J\nsecond" };
    const files = query.get("match") === "*none*" ? [] : all;
    const items = files.slice(0, Number(query.get("limit")));
    const total_bytes = files.reduce((sum, { bytes }) => sum + bytes, 0);
    return { body: { items, next_cursor: null, total: files.length, total_bytes, as_of: asOf } };
  });
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const onMatch = vi.fn();
  const tab = (typed?: string) => (
    <QueryClientProvider client={client}>
      <FilesTab job={job} match={typed} onMatch={onMatch} />
    </QueryClientProvider>
  );
  const { rerender } = render(tab(match));
  onMatch.mockImplementation((typed) => rerender(tab(typed)));
  return asked;
}

beforeEach(() => {
  vi.unstubAllGlobals();
  URL.createObjectURL = vi.fn(() => "blob:made");
  URL.revokeObjectURL = vi.fn();
});

it("says what is kept where there is nothing", async () => {
  show([], aJob({ kind: "script" }));
  expect((await screen.findByRole("heading", { name: "No files yet" })).parentElement?.textContent).toContain(
    "below the working folder are kept",
  );
});

it("shows names and contents as text", async () => {
  show([aFile(HOSTILE)]);
  const name = '<img src=x onerror="alert(1)">\\u202egnp.\\x0a.pt';
  fireEvent.click(await screen.findByRole("button", { name }));
  expect((await screen.findByRole("region", { name: `Beginning of ${name}` })).textContent).toContain("first\\u001b");
  expect(document.querySelector("img")).toBeNull();
});

it("shows an image from the page's memory", async () => {
  show([aFile("out/plot.svg")]);
  fireEvent.click(await screen.findByRole("button", { name: "out/plot.svg" }));
  expect((await screen.findByRole("img", { name: "out/plot.svg" })).getAttribute("src")).toBe("blob:made");
  expect(vi.mocked(URL.createObjectURL).mock.calls[0]?.[0]).toMatchObject({ type: "image/svg+xml" });
});

it("renders a part of ten thousand files, and more on request", async () => {
  const asked = show(Array.from({ length: 10_000 }, (_, number) => aFile(`out/${number}.txt`)));
  expect(await screen.findAllByRole("row")).toHaveLength(201);
  expect(screen.getByText("200 of 10,000 are shown")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Show more" }));
  await waitFor(() => expect(screen.getAllByRole("row")).toHaveLength(401));
  expect(asked.filter(({ path }) => path.endsWith("/files")).map(({ query }) => query.get("limit"))).toEqual([
    "200",
    "400",
  ]);
});

it("filters by a part of a name, and deletes what matches once it is confirmed", async () => {
  const asked = show([aFile("a.pt"), aFile("b.pt")]);
  fireEvent.change(await screen.findByRole("searchbox"), { target: { value: "pt" } });
  fireEvent.click(await screen.findByRole("button", { name: "Delete these" }));
  expect(asked.at(-1)?.query.getAll("match")).toEqual(["*pt*"]);
  const dialog = await screen.findByRole("dialog");
  expect(dialog.textContent).toContain("2 files, 10 B. It cannot be taken back.");
  fireEvent.click(within(dialog).getByRole("button", { name: "Delete" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const [removed] = asked.filter(({ method }) => method === "DELETE");
  expect(removed?.query.getAll("match")).toEqual(["*pt*"]);
});

it("keeps the field of the filter while the whole list comes", async () => {
  show([aFile("a.pt")], ENDED, {}, null, "none");
  await screen.findByText("No file matches.");
  const field = screen.getByRole("searchbox");
  fireEvent.change(field, { target: { value: "" } });
  expect(await screen.findByRole("button", { name: "a.pt" })).toBeTruthy();
  expect(screen.getByRole("searchbox")).toBe(field);
});

it("leaves large files to the command", async () => {
  show([aFile("out/big model.pt", 300 * 2 ** 20)]);
  fireEvent.click(await screen.findByRole("button", { name: "out/big model.pt" }));
  expect(await screen.findByText("lockstep files get 2f02a2d6 'out/big model.pt'")).toBeTruthy();
  expect(screen.queryByRole("button", { name: /^Download/ })).toBeNull();
});

it("has the age of the list while the job runs, whose files are not deleted", async () => {
  const asOf = new Date(Date.now() - 14_500).toISOString();
  show([aFile("a")], aJob({ kind: "script" }), {}, asOf);
  await screen.findByRole("button", { name: "a" });
  expect(screen.getByText(/^1 file, 5 B, as of 1[3-9] s ago$/)).toBeTruthy();
  expect(screen.queryByRole("button", { name: /^Delete/ })).toBeNull();
});

it.each([
  ["checkpoint.read", "a.txt", 2],
  ["job.write", "Delete all", 1],
] as const)("offers a caller with the right %s no more than %s", async (right, button, count) => {
  show([aFile("a.txt")], ENDED, { ...VIEWER, rights_in: { default: ["job.read", right] } });
  expect(await screen.findByRole("button", { name: button })).toBeTruthy();
  expect(screen.getAllByRole("button")).toHaveLength(count);
});
