// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { watchConnection } from "@/api/connection";
import type { JobView } from "@/api/generated";
import { setPace } from "@/api/pace";
import { queryClient, usePolled } from "@/api/polling";
import { ProgressPanel } from "@/features/job/ProgressPanel";
import { duration } from "@/lib/format";
import { aJob } from "@/testing/jobs";
import { Clock } from "./Clock";
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

function Page() {
  const { data } = usePolled({ key: ["job", "gpt"], fetch: async () => ({ data: await ask() }), seconds: 3 });
  return data === undefined ? null : (
    <Clock of={["job", "gpt"]}>
      <ProgressPanel job={data} />
    </Clock>
  );
}

const after = (seconds: number) => act(() => vi.advanceTimersByTimeAsync(seconds * 1_000));
const elapsed = () => screen.getByText(/^Elapsed/).parentElement?.textContent;

async function show() {
  ask.mockReset().mockResolvedValue(aJob({ started_at: START }));
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
  await after(30);
  expect(elapsed()).toBe("Elapsed30 s");
}

it.each([
  ["the connection is lost", Failure.unreached(), 4],
  ["the answers are cut", Failure.broken(200), 20],
])("stops a job's time at the last answer while %s, and goes on with the next", async (_, failure, seconds) => {
  await show();
  ask.mockRejectedValue(failure);
  await after(seconds);
  expect(elapsed()).toBe("Elapsed stopped30 s");
  await after(20);
  expect(elapsed()).toBe("Elapsed stopped30 s");
  ask.mockResolvedValue(aJob({ started_at: START }));
  await after(4);
  expect(elapsed()).toBe(`Elapsed${duration((Date.now() - Date.parse(START)) / 1_000)}`);
});

it("stops a job's time while polling is paused", async () => {
  await show();
  act(() => setPace("paused"));
  await after(10);
  expect(elapsed()).toBe("Elapsed stopped30 s");
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
