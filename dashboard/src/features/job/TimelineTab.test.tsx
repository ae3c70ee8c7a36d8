import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import type { ReactNode } from "react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { type EventView, getJobLive, type JobView, listJobAttempts, listJobEvents } from "@/api/generated";
import { useFollowedJob } from "@/api/live";
import { aJob, anAttempt, event } from "@/testing/jobs";
import { LiveService } from "@/testing/live";
import { render } from "@/testing/render";
import { TimelineTab } from "./TimelineTab";

vi.mock("@/api/generated", () => ({
  getJobLive: vi.fn(),
  getJobMetrics: vi.fn(),
  getJobSpec: vi.fn(),
  listJobAttempts: vi.fn(),
  listJobCheckpoints: vi.fn(),
  listJobEvents: vi.fn(),
}));
vi.mock("@tanstack/react-router", () => ({
  Link: ({ params, search, children }: { params: object; search: object; children: ReactNode }) => (
    <a href={JSON.stringify({ ...params, ...search })}>{children}</a>
  ),
}));

const ENDED: JobView = aJob({ state: "cancelled", finished_at: "2026-01-01T00:02:00Z" });

/** The page of a job that is followed; `more` adds events as the next answer about it does. */
function show(job: JobView) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const service = new LiveService(job);
  service.events = [...known];
  vi.mocked(getJobLive).mockImplementation(service.answer as never);
  function Page({ shown }: { shown: JobView }) {
    useFollowedJob(shown.id);
    return <TimelineTab job={shown} />;
  }
  const page = (shown: JobView) => (
    <QueryClientProvider client={client}>
      <Page shown={shown} />
    </QueryClientProvider>
  );
  const { rerender } = render(page(job));
  const poll = (events: readonly EventView[], isGap = false) => {
    tell(events);
    service.events = [...events];
    if (isGap) service.generation += 1;
    return client.refetchQueries();
  };
  return Object.assign((next: JobView) => rerender(page(next)), { poll });
}

let known: readonly EventView[] = [];

/** The service: a page of at most `limit` events beyond the cursor, in this order. */
function tell(events: readonly EventView[]) {
  known = events;
  vi.mocked(listJobEvents).mockImplementation((({ query: { order, cursor, limit } }: Asked) => {
    const rest = events.filter(({ id }) => cursor === undefined || (order === "newest" ? id < cursor : id > cursor));
    if (order === "newest") rest.reverse();
    const items = rest.slice(0, limit);
    const next_cursor = rest.length > items.length ? String(items.at(-1)?.id) : null;
    return Promise.resolve({ data: { items, next_cursor } });
  }) as never);
}

interface Asked {
  query: { order: "newest" | "oldest"; cursor?: number; limit: number };
}

/** What was asked for: in which order, from where. */
function asked() {
  return vi.mocked(listJobEvents).mock.calls.map(([{ query }]) => [query?.order, query?.cursor]);
}

beforeEach(() => {
  vi.mocked(listJobEvents).mockReset();
  vi.mocked(listJobAttempts).mockReset();
  vi.mocked(listJobAttempts).mockResolvedValue({ data: { items: [] } } as never);
  tell([]);
});

describe("the attempts", () => {
  const RESTARTED = [
    anAttempt(2, {
      state: "running",
      nodes: ["borea"],
      world_size: 1,
      plan_sentence: "64 = 1 rank × 8 samples × 8 accumulation steps",
      ended_at: null,
    }),
    anAttempt(1, {
      plan_sentence: "64 = 2 ranks × 8 samples × 4 accumulation steps",
      outcome: {
        reason: "killed",
        message: "rank 1 was ended by SIGKILL",
        rank: 1,
        node: "atlas",
        exception: "OSError: gone\nmore of it",
        advice: "Look at the node's system log.",
      },
    }),
  ];
  const rows = async () =>
    (await screen.findAllByRole("heading", { name: /^Attempt \d/ })).map((title) => title.closest("li"));

  it("show at one glance that the batch stayed the same, and what of it changed", async () => {
    vi.mocked(listJobAttempts).mockResolvedValue({ data: { items: RESTARTED } } as never);
    show(aJob());
    expect((await screen.findByTestId("kept")).textContent).toContain(
      "The batch was 64 samples a step in both attempts.",
    );
    const made = screen.getAllByTestId("made");
    expect(made.map((one) => one.textContent?.replace(/\s+/g, " ").trim())).toEqual([
      "64 = 1 rank × 8 samples × 8 accumulation steps",
      "64 = 2 ranks × 8 samples × 4 accumulation steps",
    ]);
    const changed = (one: HTMLElement) => [...one.querySelectorAll("strong")].map((part) => part.textContent);
    expect(made.map(changed)).toEqual([["1 rank", "8 accumulation steps"], []]);
  });

  it("say when, where, how each ended, and what to do only when asked", async () => {
    vi.mocked(listJobAttempts).mockResolvedValue({ data: { items: RESTARTED } } as never);
    tell([event(1, "placed"), event(2, "running", 1), { ...event(3, "resumed", 2), data: { step: 1_200 } }]);
    show(aJob());
    const [newest, first] = await rows();
    expect(newest?.textContent).toContain("running");
    await waitFor(() => expect(newest?.textContent).toContain("from step 1,200 on"));
    expect(newest?.textContent).toContain("1 rank");
    const text = first?.textContent ?? "";
    for (const words of ["killed", "on atlas", "2 ranks", "rank 1 on atlas", "OSError: gone"])
      expect(text).toContain(words);
    expect(text).not.toContain("more of it");
    expect(first?.querySelector("details")?.open).toBe(false);
    expect(within(first as HTMLElement).getByText("What to do").tagName).toBe("SUMMARY");
    const logs =
      within(first as HTMLElement)
        .getByRole("link")
        .getAttribute("href") ?? "";
    expect(JSON.parse(logs)).toEqual({ job: aJob().id, tab: "logs", attempt: 1, rank: 1, line: "first-error" });
  });

  it("are asked for again when the job's version tells that something became of it, and not otherwise", async () => {
    vi.mocked(listJobAttempts).mockResolvedValue({ data: { items: RESTARTED.slice(1) } } as never);
    const again = show(aJob({ version: 4 }));
    expect(await rows()).toHaveLength(1);
    again(aJob({ version: 4, progress: { step: 1, steps: null, samples: null, fraction: null, eta_seconds: null } }));
    expect(listJobAttempts).toHaveBeenCalledTimes(1);
    vi.mocked(listJobAttempts).mockResolvedValue({ data: { items: RESTARTED } } as never);
    again(aJob({ version: 5 }));
    await waitFor(async () => expect(await rows()).toHaveLength(2));
    expect(listJobAttempts).toHaveBeenCalledTimes(2);
  });

  it("are drawn ten at a time", async () => {
    const many = Array.from({ length: 30 }, (_, place) =>
      anAttempt(30 - place, { created_at: "2026-01-01T00:00:00Z", ended_at: "2026-01-01T00:01:00Z" }),
    );
    vi.mocked(listJobAttempts).mockResolvedValue({ data: { items: many } } as never);
    show(ENDED);
    expect(await rows()).toHaveLength(10);
    fireEvent.click(screen.getByRole("button", { name: "Show 20 earlier attempts" }));
    expect(await rows()).toHaveLength(30);
  });

  it("are none of a job that waits", async () => {
    show(aJob({ state: "queued", started_at: null }));
    expect(await screen.findByText("None yet: it waits for devices.")).toBeTruthy();
  });
});

describe("the events", () => {
  const shown = () =>
    screen.queryAllByText(/^(warning|submitted|cancelled) \d+$/).map((message) => message.textContent);

  it("are read from the newest back, page by page", async () => {
    tell(
      Array.from({ length: 1_001 }, (_, at) =>
        event(at + 1, at === 0 ? "submitted" : "checkpoint", at === 0 ? null : 1),
      ),
    );
    show(ENDED);
    await waitFor(() => expect(shown()).toEqual(["submitted 1"]));
    expect(asked()).toEqual([
      ["newest", 502],
      ["newest", 2],
    ]);
  });

  const alike = (kind: string, count: number) => Array.from({ length: count }, (_, at) => event(at + 1, kind, 1));

  it("of a long story are there with the first answer, the newest above", async () => {
    tell(alike("warning", 12_345));
    vi.mocked(listJobEvents).mockImplementation((() => new Promise(() => {})) as never);
    show(ENDED);
    await waitFor(() => expect(shown()[0]).toBe("warning 12345"));
    expect(shown()).toHaveLength(200);
  });

  it("are drawn as far as somebody asks", async () => {
    tell(alike("warning", 1_234));
    show(ENDED);
    fireEvent.click(await screen.findByRole("button", { name: "Show older events (1,034 more)" }));
    expect(shown()).toHaveLength(400);
    expect(shown().at(-1)).toBe("warning 835");
  });

  it("are read as far as somebody asks", async () => {
    // Drawn as one entry, so that there is nothing to show before more is read.
    tell(alike("checkpoint", 12_345));
    show(ENDED);
    const older = () => asked().length;
    const button = () => screen.findByRole("button", { name: "Show older events" });
    const gathered = (count: string) => screen.findByText(new RegExp(`: ${count} checkpoints`));
    await gathered("5000");
    expect(older()).toBe(9);
    fireEvent.click(await button());
    await gathered("10000");
    expect(older()).toBe(19);
    fireEvent.click(await button());
    await gathered("12345");
    expect(older()).toBe(24);
    expect(screen.queryByRole("button")).toBeNull();
  });

  it("that are new are read from the newest on", async () => {
    tell(alike("warning", 3));
    const page = show(aJob());
    await waitFor(() => expect(shown()).toHaveLength(3));
    await page.poll(alike("warning", 5));
    await waitFor(() => expect(shown()[0]).toBe("warning 5"));
    expect(shown()).toHaveLength(5);
    expect(asked()).toEqual([]);
  });

  it("begin at the newest again for who was away for long", async () => {
    tell(alike("warning", 3));
    const page = show(aJob());
    await waitFor(() => expect(shown()).toHaveLength(3));
    await page.poll(alike("warning", 900), true);
    await waitFor(() => expect(shown()[0]).toBe("warning 900"));
    await waitFor(() => expect(screen.getByRole("button", { name: "Show older events (700 more)" })).toBeTruthy());
  });
});
