// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { watchConnection } from "@/api/connection";
import type { JobView } from "@/api/generated";
import { setPace } from "@/api/pace";
import { queryClient, usePolled } from "@/api/polling";
import { factsOf } from "@/features/job/job-facts";
import { duration } from "@/lib/format";
import { aJob } from "@/testing/jobs";
import { render } from "@/testing/render";
import { Clock, useClock } from "./Clock";
import { useNow } from "./useNow";

const START = "2026-11-22T12:01:00Z";

let unwatch = () => {};
beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse(START) });
  localStorage.clear();
  queryClient.clear();
  unwatch = watchConnection(queryClient.getQueryCache());
});
afterEach(() => {
  unwatch();
  vi.useRealTimers();
});

const ask = vi.fn<() => Promise<JobView>>();

function Elapsed({ job }: { job: JobView }) {
  const fact = factsOf(job, useClock()).find(({ name }) => name === "elapsed");
  return (
    <time>
      {fact?.value} {fact?.after}
    </time>
  );
}

function Page() {
  const { data } = usePolled({ key: ["job", "gpt"], fetch: async () => ({ data: await ask() }), seconds: 3 });
  return data === undefined ? null : (
    <Clock of={["job", "gpt"]}>
      <Elapsed job={data} />
    </Clock>
  );
}

const after = (seconds: number) => act(() => vi.advanceTimersByTimeAsync(seconds * 1_000));
const elapsed = () => screen.getByText(/elapsed/).textContent;

async function show() {
  ask.mockReset().mockResolvedValue(aJob({ started_at: START }));
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
  await after(30);
  expect(elapsed()).toBe("30 s elapsed");
}

it.each([
  ["the connection is lost", Failure.unreached(), 4],
  ["the answers are cut", Failure.broken(200), 20],
])("stops a job's time at the last answer while %s, and goes on with the next", async (_, failure, seconds) => {
  await show();
  ask.mockRejectedValue(failure);
  await after(seconds);
  expect(elapsed()).toBe("30 s elapsed, stopped");
  await after(20);
  expect(elapsed()).toBe("30 s elapsed, stopped");
  ask.mockResolvedValue(aJob({ started_at: START }));
  await after(4);
  expect(elapsed()).toBe(`${duration((Date.now() - Date.parse(START)) / 1_000)} elapsed`);
});

it("stops a job's time while polling is paused", async () => {
  await show();
  act(() => setPace("paused"));
  await after(10);
  expect(elapsed()).toBe("30 s elapsed, stopped");
});

it("has one timer for all times of a page, and none without them", () => {
  const timers = () => vi.getTimerCount();
  const before = timers();
  const Time = () => <time>{useNow() + useNow(10)}</time>;
  const page = render([1, 2, 3].map((key) => <Time key={key} />));
  expect(timers()).toBe(before + 1);
  page.unmount();
  expect(timers()).toBe(before);
});
