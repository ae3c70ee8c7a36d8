/** Charts over a service that has four series of five thousand points, with a button in place of each drawing. */
import { QueryClientProvider } from "@tanstack/react-query";
import { screen } from "@testing-library/react";
import { vi } from "vitest";
import { getSeries, listJobSeries, listSeries, type SeriesSummary } from "@/api/generated";
import { queryClient } from "@/api/polling";
import type { JobOfCharts } from "@/api/series";
import { Charts } from "@/components/charts/Charts";
import type { Mark } from "@/lib/marks";
import { render } from "@/testing/render";
import { summary } from "./series";
import { view } from "./views";

export const NAMES = ["train/loss", "train/grad_norm", "eval/loss", "system/node0/cpu_percent"];

const METADATA: Readonly<Record<string, Partial<SeriesSummary>>> = {
  "train/loss": { group: "train", direction: "lower" },
  "train/grad_norm": { group: "train" },
  "eval/loss": { group: "eval", direction: "lower", unit: "nats" },
  "system/node0/cpu_percent": { group: "system", axis: "time", kind: "percent", unit: "%", domain: [0, 100] },
};

/** Each job has these series. */
export function serveSeries(series: SeriesSummary[]): void {
  vi.mocked(listJobSeries).mockImplementation((({ path }: { path: { reference: string } }) =>
    Promise.resolve({ data: { job_id: path.reference, series } })) as never);
  vi.mocked(listSeries).mockImplementation((({ query }: { query: { jobs: string[] } }) =>
    Promise.resolve({
      data: { series, jobs: query.jobs.map((job_id) => ({ job_id, series: [] })) },
    })) as never);
}

/** Call before each test, with `@/api/generated` mocked. */
export function serveCurves(): void {
  vi.clearAllMocks();
  localStorage.clear();
  queryClient.clear();
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(private readonly seen: (entries: { isIntersecting: boolean }[]) => void) {}
      observe() {
        this.seen([{ isIntersecting: true }]);
      }
      disconnect() {}
    },
  );
  serveSeries(NAMES.map((name) => summary(name, METADATA[name])));
  vi.mocked(getSeries).mockImplementation((({
    query,
  }: {
    query: { jobs: string[]; names: string[]; from_step?: number; to_step?: number };
  }) =>
    Promise.resolve({
      data: {
        jobs: query.jobs.map((job_id) => ({
          job_id,
          cursor: "",
          complete: true,
          series: query.names.map((name) => {
            const from = query.from_step ?? 0;
            return view(name, (query.to_step ?? 999) - from + 1, 5_000, from);
          }),
        })),
      },
    })) as never);
}

export function show(jobs: JobOfCharts[], hidden?: Set<string>, marks?: Mark[]) {
  return render(
    <QueryClientProvider client={queryClient}>
      <Charts jobs={jobs} hidden={hidden} marks={marks} />
    </QueryClientProvider>,
  );
}

export const job = (id: string, state: JobOfCharts["state"] = "succeeded"): JobOfCharts => ({
  id,
  name: `job ${id}`,
  state,
});
export const cards = () => screen.getAllByRole("article").map((card) => card.dataset.metric);
