import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { getSeries } from "@/api/generated";
import { queryClient } from "@/api/polling";
import type { JobOfCharts } from "@/api/series";
import { cards, job, serveCurves, serveSeries, show } from "@/testing/charts";
import { render } from "@/testing/render";
import { summary } from "@/testing/series";
import { view } from "@/testing/views";
import { Charts } from "./Charts";

vi.mock("@/api/generated");
vi.mock("./Plot", () => import("@/testing/plot"));
beforeEach(serveCurves);

it("groups cards, losses first, and folds what is of the system", async () => {
  show([job("a")]);
  await screen.findByRole("button", { name: /train 2/ });
  expect(cards()).toEqual(["train/loss", "train/grad_norm", "eval/loss"]);
  fireEvent.click(screen.getByRole("button", { name: /system 1/ }));
  expect(cards()).toContain("system/node0/cpu_percent");
});

it("filters cards by name, folded ones too, and says so where none is left", async () => {
  show([job("a")]);
  const search = await screen.findByRole("searchbox");
  fireEvent.change(search, { target: { value: "cpu" } });
  expect(cards()).toEqual(["system/node0/cpu_percent"]);
  fireEvent.change(search, { target: { value: "nothing like it" } });
  expect(screen.queryAllByRole("article")).toEqual([]);
  fireEvent.click(screen.getByRole("button", { name: "Show all charts" }));
  expect(cards()).toHaveLength(3);
});

it("shows pinned cards first, also on the next visit", async () => {
  const first = show([job("a")]);
  fireEvent.click(await screen.findByRole("button", { name: "Pin eval/loss" }));
  expect(cards()[0]).toBe("eval/loss");
  first.unmount();
  show([job("a")]);
  await screen.findByRole("button", { name: /pinned 1/ });
  expect(cards()).toEqual(["eval/loss", "train/loss", "train/grad_norm"]);
});

it("asks for all cards of a group at once, for ended jobs and running ones apart", async () => {
  show([job("a"), job("b", "running"), job("c")]);
  await waitFor(() => expect(getSeries).toHaveBeenCalledTimes(4));
  const asked = vi.mocked(getSeries).mock.calls.map(([{ query }]) => [query.jobs, query.names]);
  expect(asked).toContainEqual([
    ["a", "c"],
    ["train/loss", "train/grad_norm"],
  ]);
  expect(asked).toContainEqual([["b"], ["train/loss", "train/grad_norm"]]);
});

it("goes on asking for what runs, and asks once for what has ended", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  try {
    show([job("ended"), job("runs", "running")]);
    await waitFor(() => expect(getSeries).toHaveBeenCalledTimes(4));
    await vi.advanceTimersByTimeAsync(19_000);
    const asked = (id: string) =>
      vi.mocked(getSeries).mock.calls.filter(([{ query }]) => query.jobs.includes(id)).length;
    // Two requests each, for the cards of two groups; three times more of what runs.
    expect(asked("ended")).toBe(2);
    expect(asked("runs")).toBeGreaterThanOrEqual(8);
  } finally {
    vi.useRealTimers();
  }
});

it("asks only for what came since, and adds it to what is known", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  try {
    let told = 0;
    vi.mocked(getSeries).mockImplementation((({ query }: { query: { names: string[]; since?: string[] } }) => {
      if (query.since === undefined) {
        const series = query.names.map((name) => view(name, 10));
        return Promise.resolve({ data: { jobs: [{ job_id: "a", series, cursor: "ten", complete: true }] } });
      }
      told += 1;
      const isNew = query.since[0] === "ten";
      const series = isNew ? query.names.map((name) => view(name, 3, 3, 10)) : [];
      return Promise.resolve({ data: { jobs: [{ job_id: "a", series, cursor: "thirteen", complete: false }] } });
    }) as never);
    show([job("a", "running")]);
    await waitFor(() => expect(getSeries).toHaveBeenCalledTimes(2));
    await vi.advanceTimersByTimeAsync(19_000);
    expect(told).toBeGreaterThanOrEqual(4);
    const since = vi.mocked(getSeries).mock.calls.map(([{ query }]) => query.since?.[0]);
    expect(since.filter((cursor) => cursor === undefined)).toHaveLength(2);
    expect(since.at(-1)).toBe("thirteen");
    const answers = queryClient.getQueriesData<{ curves: Map<string, Map<string, { step: Float64Array }[]>> }>({
      queryKey: ["series", "running"],
    });
    const steps = answers.flatMap(([, data]) => [...(data?.curves.get("a")?.get("train/loss")?.[0]?.step ?? [])]);
    expect(steps).toEqual(Array.from({ length: 13 }, (_, step) => step));
  } finally {
    vi.useRealTimers();
  }
});

it("asks a last time for a job that ends while one looks, when its last points are stored", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  try {
    const page = (state: JobOfCharts["state"]) => (
      <QueryClientProvider client={queryClient}>
        <Charts jobs={[job("a", state)]} />
      </QueryClientProvider>
    );
    const { rerender } = render(page("running"));
    await waitFor(() => expect(getSeries).toHaveBeenCalledTimes(2));
    rerender(page("succeeded"));
    await vi.advanceTimersByTimeAsync(10_000);
    const calls = vi.mocked(getSeries).mock.calls.length;
    expect(calls).toBeGreaterThanOrEqual(4);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(vi.mocked(getSeries).mock.calls.length).toBe(calls);
  } finally {
    vi.useRealTimers();
  }
});

it("labels the best value of a series with a direction, at the step of the service, and the unit of its numbers", async () => {
  const lower = { group: "val", direction: "lower", unit: "nats", best: 0, best_step: 3 } as const;
  serveSeries([summary("val/loss", lower), summary("val/other", { group: "val", best: null })]);
  show([job("a")]);
  const card = await screen.findByRole("article", { name: /val\/loss nats/ });
  const best = await within(card).findByText("best, lowest");
  expect(best.parentElement?.title).toBe("at step 3");
  await within(card).findByRole("button", { name: /last 999 nats at step 999, lowest 0 nats, highest 999 nats/ });
  const other = screen.getByRole("article", { name: /val\/other/ });
  await within(other).findByText("lowest");
  expect(within(other).queryByText(/best/)).toBeNull();
});

it("draws every job but the hidden ones", async () => {
  show([job("a"), job("b")], new Set(["a"]));
  const card = await screen.findByRole("article", { name: /train\/loss/ });
  await waitFor(() => expect(within(card).getByText("b")).toBeDefined());
  expect(within(card).queryByText("a b")).toBeNull();
});

it("asks again for the zoomed steps where places are buckets, and leads back", async () => {
  show([job("a")]);
  const card = await screen.findByRole("article", { name: /train\/loss/ });
  expect(screen.queryByRole("button", { name: "Reset zoom" })).toBeNull();
  fireEvent.click(await within(card).findByRole("button", { name: /^Line chart/ }));
  await waitFor(() =>
    expect(
      vi.mocked(getSeries).mock.calls.some(([{ query }]) => query.from_step === 100 && query.to_step === 200),
    ).toBe(true),
  );
  fireEvent.click(screen.getByRole("button", { name: "Reset zoom" }));
  expect(screen.queryByRole("button", { name: "Reset zoom" })).toBeNull();
});

it("says in words what a chart shows", async () => {
  show([job("a")]);
  const card = await screen.findByRole("article", { name: /train\/loss/ });
  await within(card).findByRole("button", {
    name: "Line chart of train/loss over steps. job a: last 999 at step 999, lowest 0, highest 999.",
  });
});

it("tells what to do where there are no points yet, and that nothing comes any more where the job has ended", async () => {
  serveSeries([]);
  const first = show([job("a", "running")]);
  await screen.findByText("No points yet");
  first.unmount();
  show([job("b", "failed")]);
  await screen.findByText("This job reported no metrics");
});
