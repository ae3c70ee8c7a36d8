// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Curve } from "@/lib/curves";
import { aJob } from "@/testing/jobs";
import { LiveService } from "@/testing/live";
import { randomFrom } from "@/testing/random";
import { render } from "@/testing/render";
import { Failure } from "./client";
import { type EventView, getJobLive } from "./generated";
import { useFollowedCurves, useFollowedJob, useTold } from "./live";
import { queryClient } from "./polling";

vi.mock("./generated", () => ({ getJobLive: vi.fn() }));

const NAMES = ["a", "b", "c", "d"];
const ID = aJob().id;
let service: LiveService;
let drawn: Map<string, readonly Curve[]>;
let told: readonly EventView[] | undefined;

beforeEach(() => {
  vi.useFakeTimers({ now: 1_700_000_000_000 });
  localStorage.clear();
  queryClient.clear();
  service = new LiveService(aJob());
  drawn = new Map();
  vi.mocked(getJobLive)
    .mockReset()
    .mockImplementation(service.answer as never);
});
afterEach(() => vi.useRealTimers());

function Chart({ name, isSeen }: { name: string; isSeen: boolean }) {
  const curves = useFollowedCurves({ id: ID, reference: "last", names: [name], enabled: isSeen });
  drawn.set(name, curves?.get(name) ?? []);
  return null;
}

function Page({ seen }: { seen: readonly string[] }) {
  const { data: job } = useFollowedJob("last");
  told = useTold(ID)?.events;
  return job === undefined ? null : NAMES.map((name) => <Chart key={name} name={name} isSeen={seen.includes(name)} />);
}

function open(seen: readonly string[]) {
  const page = (names: readonly string[]) => (
    <QueryClientProvider client={queryClient}>
      <Page seen={names} />
    </QueryClientProvider>
  );
  const { rerender } = render(page(seen));
  return (names: readonly string[]) => rerender(page(names));
}

const after = (seconds: number) => act(() => vi.advanceTimersByTimeAsync(seconds * 1_000));
const asked = () => vi.mocked(getJobLive).mock.calls.map(([{ query }]) => query?.names ?? []);
const steps = (name: string) => drawn.get(name)?.flatMap(({ step }) => [...step]);
const upTo = (count: number) => Array.from({ length: count }, (_, step) => step);
const event = (id: number) => ({ id, kind: "warning", message: "slow" }) as EventView;

it("adds up to every point and event, whatever is on the screen meanwhile", async () => {
  const random = randomFrom(7);
  const some = () => NAMES.filter(() => random() < 0.5);
  const show = open(some());
  for (let round = 0; round < 60; round += 1) {
    for (const name of some()) service.points.set(name, (service.points.get(name) ?? 0) + Math.ceil(random() * 20));
    if (random() < 0.3) service.events.push(event(service.events.length + 1));
    if (random() < 0.1) service.generation += 1;
    if (random() < 0.2) vi.mocked(getJobLive).mockRejectedValueOnce(Failure.unreached());
    show(some());
    await after(random() * 5);
  }
  show(NAMES);
  await after(7);
  for (const name of NAMES) expect(steps(name)).toEqual(upTo(service.points.get(name) ?? 0));
  expect(told).toEqual(service.events);
});

it("asks once for all charts that come onto the screen, at once, and then once per tick", async () => {
  const show = open([]);
  await after(0.5);
  show(["a", "b"]);
  await after(0.5);
  expect(asked()).toEqual([[], ["a", "b"]]);
  await after(60);
  expect(asked()).toHaveLength(22);
});

it("does not ask a service faster that does not answer", async () => {
  const show = open([]);
  await after(0.5);
  vi.mocked(getJobLive).mockRejectedValue(Failure.broken(502));
  show(NAMES);
  await after(30);
  expect(asked().length).toBeLessThan(14);
});

it("asks for the last points of a job that ends, and then for nothing", async () => {
  open(["a"]);
  await after(4);
  service.job = aJob({ state: "succeeded" });
  service.points.set("a", 3);
  await after(12);
  expect(steps("a")).toEqual([0, 1, 2]);
  const count = asked().length;
  await after(60);
  expect(asked()).toHaveLength(count);
});

it("asks once about a job that has ended", async () => {
  service.job = aJob({ state: "failed" });
  open([]);
  await after(60);
  expect(asked()).toHaveLength(1);
});

it("keeps the points of a long curve in fewer places", async () => {
  open(["a"]);
  for (let second = 0; second < 90; second += 3) {
    service.points.set("a", (service.points.get("a") ?? 0) + 100);
    await after(3);
  }
  await after(4);
  const [curve] = drawn.get("a") ?? [];
  expect(curve?.count).toBe(service.points.get("a"));
  expect(curve?.step.length).toBeLessThanOrEqual(1_000);
  expect([curve?.min[0], curve?.max.at(-1)]).toEqual([0, (service.points.get("a") ?? 0) - 1]);
});
