// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { setPace } from "@/api/pace";
import { queryClient, usePolled } from "@/api/polling";
import { Freshness } from "@/app/Freshness";
import { render } from "@/testing/render";
import { Stale } from "./Stale";

beforeEach(() => {
  vi.useFakeTimers();
  localStorage.clear();
  queryClient.clear();
});
afterEach(() => vi.useRealTimers());

function Panel({ name, ask, isFinal = false }: { name: string; ask: () => Promise<unknown>; isFinal?: boolean }) {
  usePolled({
    key: [name, 1],
    fetch: async () => ({ data: await ask() }),
    seconds: 2,
    isFinal: () => isFinal,
  });
  return (
    <section aria-label={name}>
      <Stale of={[[name]]} />
    </section>
  );
}

function page(panels: Record<string, () => Promise<unknown>>, isFinal = false) {
  return render(
    <QueryClientProvider client={queryClient}>
      <Freshness />
      {Object.entries(panels).map(([name, ask]) => (
        <Panel key={name} name={name} ask={ask} isFinal={isFinal} />
      ))}
    </QueryClientProvider>,
  );
}

const after = (seconds: number) => act(() => vi.advanceTimersByTimeAsync(seconds * 1_000));
const told = () => screen.queryAllByTestId("stale").map((note) => note.parentElement?.getAttribute("aria-label"));

it("asks again after an answer that broke off, and shows the next whole one", async () => {
  const ask = vi.fn(async () => "whole");
  page({ charts: ask });
  await after(1);
  ask.mockRejectedValueOnce(Failure.broken(200)).mockRejectedValueOnce(Failure.unreached());
  await after(20);
  expect(ask.mock.calls.length).toBeGreaterThanOrEqual(9);
  expect(queryClient.getQueryState(["charts", 1])).toMatchObject({ data: "whole", status: "success" });
});

it("does not ask again for what was refused", async () => {
  const ask = vi.fn(() => Promise.reject(Failure.answered(422, { title: "No" })));
  page({ charts: ask });
  await after(20);
  expect(ask).toHaveBeenCalledTimes(1);
});

it("marks the one panel whose answers do not come any more, while another is fresh", async () => {
  const charts = vi.fn(async () => "points");
  page({ charts, header: async () => "job" });
  await after(5);
  expect(told()).toEqual([]);
  expect(screen.getByTestId("freshness").textContent).toBe("");
  charts.mockRejectedValue(Failure.broken(200));
  await after(12);
  expect(told()).toEqual(["charts"]);
  expect(screen.getByTestId("freshness").textContent).toBe("1 panel is old");
  expect(screen.getByTestId("stale").textContent).toMatch(/Not updated for 1\d s: The answer of Lockstep was cut off/);
  charts.mockResolvedValue("points");
  fireEvent.click(screen.getByRole("button", { name: "Retry" }));
  await after(1);
  expect(told()).toEqual([]);
});

it("marks a panel whose request hangs", async () => {
  const charts = vi.fn(async () => "points");
  page({ charts });
  await after(5);
  charts.mockReturnValue(new Promise(() => {}));
  await after(12);
  expect(told()).toEqual(["charts"]);
});

it("calls nothing old that is final, or that was paused", async () => {
  const final = page({ charts: async () => "points" }, true);
  await after(60);
  expect(told()).toEqual([]);
  final.unmount();
  setPace("paused");
  page({ header: async () => "job" });
  await after(60);
  expect(told()).toEqual([]);
});
