import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { screen } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { getJob, getWhy, type JobView, type WhyView } from "@/api/generated";
import { aJob } from "@/testing/jobs";
import { render } from "@/testing/render";
import { WhyPanel } from "./WhyPanel";

vi.mock("@/api/generated", () => ({ getJob: vi.fn(), getWhy: vi.fn() }));
vi.mock("@tanstack/react-router", () => ({
  Link: ({ to, params, children }: { to: string; params?: object; children: ReactNode }) => (
    <a href={`${to} ${JSON.stringify(params)}`}>{children}</a>
  ),
}));

const JOB = aJob({ name: "digits" });

afterEach(() => vi.useRealTimers());

describe("a job that waits", () => {
  const AHEAD = { id: "wide", name: "wide", project: "nlp", owner: "lea", devices: 16, position: 1 };
  const reason = `behind job ${JOB.id}, which needs the same devices`;

  function waits(queue: JobView["queue"], why: Partial<WhyView> = {}) {
    vi.mocked(getWhy).mockResolvedValue({ data: { start: null, ahead: [], ahead_count: 0, ...why } } as never);
    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    const job = { ...JOB, id: "other", state: "queued" as const, queue, reason: "the scheduler has not looked yet" };
    render(
      <QueryClientProvider client={client}>
        <WhyPanel job={job} />
      </QueryClientProvider>,
    );
  }

  it("has its reason, place, and the jobs ahead of it", async () => {
    vi.mocked(getJob).mockResolvedValue({ data: { ...JOB, name: "digits" } } as never);
    const start = "no start is known: it starts once a node is ready";
    waits({ position: 4, reason }, { start, ahead: [AHEAD], ahead_count: 3 });
    expect(await screen.findByText("No start is known: it starts once a node is ready.")).toBeTruthy();
    expect(screen.getByText(/^Behind job/).textContent).toBe("Behind job digits, which needs the same devices");
    expect(screen.getByText("3 jobs are ahead of it").closest("details")?.open).toBe(true);
    expect(screen.getAllByRole("listitem").map((item) => item.textContent)).toEqual([
      "1wide 16 devices, nlp, by lea",
      "and 2 more jobs",
    ]);
    expect(screen.getByRole("link", { name: "wide" }).getAttribute("href")).toContain('{"job":"wide"}');
  });

  it("shows about when it starts, and closes a long list", async () => {
    // Only the date stands still: a page that takes its time must not bring the start nearer.
    vi.useFakeTimers({ toFake: ["Date"] });
    const estimated_start = new Date(Date.now() + 10 * 60_000 + 5_000).toISOString();
    const ahead = Array.from({ length: 6 }, (_, index) => ({ ...AHEAD, id: `${index}` }));
    waits({ position: 7, reason, estimated_start }, { start: "it starts about then", ahead, ahead_count: 6 });
    expect((await screen.findByText("6 jobs are ahead of it")).closest("details")?.open).toBe(false);
    expect(screen.getByText(/^about (tomorrow )?\d\d:\d\d$/).parentElement?.textContent).toContain(", in 10 min");
    expect(screen.queryByText(/It starts about then/)).toBeNull();
  });

  it("has only the number of jobs that one may not read", async () => {
    waits({ position: 2, reason: "behind a job of another project" }, { ahead_count: 1 });
    expect(await screen.findByText("1 job is ahead of it.")).toBeTruthy();
  });

  it("has a reason before it has a place", () => {
    waits(null);
    expect(screen.getByText("The scheduler has not looked yet")).toBeTruthy();
    expect(screen.queryByText("Place in the queue")).toBeNull();
  });
});
