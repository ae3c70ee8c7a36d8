import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen, waitFor } from "@testing-library/react";
import { afterAll, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { downloadJobLogs, type GetJobLogsData, getJobLogs, type LogLine, type LogPage } from "@/api/generated";
import type { LogView } from "@/lib/log-view";
import { render } from "@/testing/render";
import { LogViewer } from "./LogViewer";

vi.mock("@/api/generated", () => ({ getJobLogs: vi.fn(), downloadJobLogs: vi.fn() }));
const saved = vi.hoisted(() => vi.fn());
vi.mock("@/lib/save-file", () => ({ saveFile: saved }));

type Asked = NonNullable<GetJobLogsData["query"]>;

function line(number: number, text: string, more: Partial<LogLine> = {}): LogLine {
  const time = "2026-01-01T00:00:00Z";
  return { attempt: 1, line: number, rank: 0, stream: "stdout", time, text, ...more };
}

let log: LogLine[] = [];
let hasEnded = false;
let asked: Asked[] = [];

/** The service's part: pages of `log`. */
function answer(query: Asked): LogPage {
  const found = log.filter(
    (each) =>
      (query.rank == null || each.rank === query.rank) &&
      (query.stream == null || each.stream === query.stream) &&
      (query.search == null || each.text.toLowerCase().includes(query.search.toLowerCase())),
  );
  const at = (cursor: string) => found.findIndex((each) => each.line >= Number(cursor.split(".")[1]));
  const from = query.cursor ? at(query.cursor) : 0;
  const to = query.before ? at(query.before) : found.length;
  const lines = from < 0 ? [] : found.slice(from, to).slice(0, query.limit ?? query.tail ?? 1_000);
  return { lines, next_cursor: `1.${log.length}`, prev_cursor: null, complete: hasEnded };
}

// jsdom lays nothing out; a virtual list needs to know how much of it is seen.
beforeAll(() => {
  vi.spyOn(Element.prototype, "clientHeight", "get").mockReturnValue(400);
  Element.prototype.scrollTo = () => {};
});
afterAll(() => void vi.restoreAllMocks());

beforeEach(() => {
  log = [line(0, "loading data"), line(1, "\u001b[31mValueError\u001b[0m: <b>", { rank: 1, stream: "stderr" })];
  asked = [];
  hasEnded = false;
  saved.mockReset();
  vi.mocked(getJobLogs).mockImplementation((({ query }: { query: Asked }) => {
    asked.push(query);
    return Promise.resolve({ data: answer(query) });
  }) as unknown as typeof getJobLogs);
});

function show(view: LogView = {}) {
  const onView = vi.fn<(view: LogView) => void>();
  const all = (shown: LogView) => (
    <QueryClientProvider client={new QueryClient()}>
      <LogViewer
        jobId="a-job"
        jobName="digits"
        attempts={1}
        ranks={2}
        view={shown}
        onView={onView}
        hrefOf={({ line: place }) => `/jobs/a-job?line=${place}`}
      />
    </QueryClientProvider>
  );
  const { rerender } = render(all(view));
  return { onView, look: (next: LogView) => rerender(all(next)) };
}

const isLive = () => screen.getByRole("button", { name: "Live" }).getAttribute("aria-pressed");

it("opens at the end and follows", async () => {
  show();
  expect(await screen.findByText("loading data")).toBeTruthy();
  expect(asked).toEqual([{ tail: 1_000 }]);
  expect(isLive()).toBe("true");
});

it("offers nothing to follow where the log has ended", async () => {
  hasEnded = true;
  show();
  await screen.findByText("loading data");
  expect(screen.queryByRole("button", { name: "Live" })).toBeNull();
});

it("shows colours and text, but no markup of the log's own", async () => {
  show();
  const text = await screen.findByText("ValueError");
  expect(text.className).toMatch(/red/);
  expect(text.closest("[data-index]")?.textContent).toBe("2rank 1 errValueError: <b>");
});

it("names each line by a link", async () => {
  const { onView } = show({ search: "value" });
  const number = await screen.findByRole("link", { name: "2" });
  expect(number.getAttribute("href")).toBe("/jobs/a-job?line=1-2");
  fireEvent.click(number);
  expect(onView).toHaveBeenLastCalledWith({ search: undefined, line: "1-2" });
});

it("points at the line that the address names, and does not follow", async () => {
  show({ line: "1-2" });
  await screen.findByText("loading data");
  expect(document.querySelector("[data-pointed-at]")?.textContent).toContain("ValueError");
  expect(isLive()).toBe("false");
});

it("lets go and follows again by key", async () => {
  show();
  await screen.findByText("loading data");
  fireEvent.keyDown(window, { key: "f" });
  expect(isLive()).toBe("false");
  fireEvent.keyDown(window, { key: "f" });
  expect(isLive()).toBe("true");
});

it("lets go once a person scrolls up, and not where the list only grew", async () => {
  show();
  await screen.findByText("loading data");
  const list = screen.getByRole("region", { name: "Log lines" });
  let height = 4_000;
  Object.defineProperty(list, "scrollHeight", { configurable: true, get: () => height });
  const scroll = (top: number) => {
    list.scrollTop = top;
    fireEvent.scroll(list);
  };
  scroll(3_600);
  height = 3_900;
  scroll(3_500);
  expect(isLive()).toBe("true");
  scroll(3_450);
  expect(isLive()).toBe("false");
});

it("asks the service for what is chosen and searched, and says which filters left nothing", async () => {
  const { onView, look } = show();
  await screen.findByText("loading data");
  fireEvent.change(screen.getByLabelText("Rank"), { target: { value: "1" } });
  expect(onView).toHaveBeenLastCalledWith({ line: undefined, rank: 1 });
  fireEvent.change(screen.getByLabelText("Search the log"), { target: { value: "nan" } });
  await waitFor(() => expect(onView).toHaveBeenLastCalledWith({ line: undefined, search: "nan" }));
  look({ rank: 1, search: "nan" });
  expect(await screen.findByText("No line fits all filters: rank 1, containing “nan”.")).toBeTruthy();
  expect(asked.at(-1)).toEqual({ rank: 1, search: "nan", tail: 1_000 });
  fireEvent.click(screen.getByRole("button", { name: "Show all lines" }));
  expect(onView).toHaveBeenLastCalledWith({});
});

it("goes to the first error by a traceback, or else by the word on stderr, and says by which", async () => {
  log.unshift(line(0, "an error of 3 %", { rank: 1 }));
  log = log.map((each, index) => ({ ...each, line: index }));
  const { onView } = show({ rank: 1 });
  fireEvent.click(screen.getByRole("button", { name: "First error" }));
  expect(await screen.findByText("The first line with “error” on stderr.")).toBeTruthy();
  expect(onView).toHaveBeenLastCalledWith({ rank: 1, line: "1-3" });
  log = [line(0, "an error of 3 %"), line(1, "Traceback (most recent call last):", { rank: 1 })];
  fireEvent.click(screen.getByRole("button", { name: "First error" }));
  expect(await screen.findByText("The first line with a traceback.")).toBeTruthy();
});

it("claims no error where there is none", async () => {
  log = [line(0, "Traceback: only a word")];
  const { onView } = show({ line: "first-error" });
  expect(await screen.findByText("No line has a traceback or “error” in it.")).toBeTruthy();
  expect(onView).toHaveBeenLastCalledWith({ line: undefined });
});

it("downloads all lines, or those that fit", async () => {
  vi.mocked(downloadJobLogs).mockResolvedValue({ data: new Blob(["x"]) } as never);
  show({ rank: 1 });
  fireEvent.click(screen.getByRole("button", { name: "Download these" }));
  await waitFor(() => expect(saved).toHaveBeenCalledWith("digits.log", expect.any(Blob)));
  fireEvent.click(screen.getByRole("button", { name: "Download all" }));
  await waitFor(() => expect(saved).toHaveBeenCalledTimes(2));
  expect(vi.mocked(downloadJobLogs).mock.calls.map(([{ query }]) => query)).toEqual([{ rank: 1 }, {}]);
});
