import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Look } from "@/lib/look";
import { changeSettings, readSettings } from "./settings";
import { useLookInAddress } from "./useLookInAddress";

beforeEach(() => {
  localStorage.clear();
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());

/** A page whose address changes as it is written. */
function visit(start: Look) {
  const writes: Look[] = [];
  const page = renderHook(
    ({ address }: { address: Look }) =>
      useLookInAddress(address, (look) => {
        writes.push(look);
        page.rerender({ address: look });
      }),
    { initialProps: { address: start } },
  );
  return { writes, page };
}

const rest = () => act(() => vi.advanceTimersByTime(1_000));

it("obeys an address once, and whole: what it does not name is as usual", () => {
  changeSettings({ smoothing: 0.9, logarithmic: ["train/lr"], pinned: ["train/loss"] });
  const { writes } = visit({ axis: "wall" });
  rest();
  expect(readSettings()).toMatchObject({ smoothing: 0, axis: "wall", logarithmic: [], pinned: ["train/loss"] });
  expect(writes).toEqual([]);
});

it("leaves a person's habits where the address says nothing, and writes them there", () => {
  changeSettings({ smoothing: 0.9, logarithmic: ["train/loss"] });
  const { writes } = visit({});
  rest();
  expect(readSettings().smoothing).toBe(0.9);
  expect(writes).toEqual([{ smoothing: 0.9, log: "train/loss" }]);
});

it("follows what is chosen, a slider that is drawn along as one change", () => {
  const { writes } = visit({ smoothing: 0.5 });
  for (const smoothing of [0.6, 0.7, 0.8]) {
    act(() => changeSettings({ smoothing }));
    act(() => vi.advanceTimersByTime(100));
  }
  expect(writes).toEqual([]);
  rest();
  act(() => changeSettings({ smoothing: 0 }));
  rest();
  expect(writes).toEqual([{ smoothing: 0.8 }, {}]);
});

it("writes in its time also where the page is drawn again and again", () => {
  const { writes, page } = visit({});
  act(() => changeSettings({ axis: "relative" }));
  for (let round = 0; round < 10; round += 1) {
    act(() => vi.advanceTimersByTime(100));
    if (writes.length === 0) page.rerender({ address: {} });
  }
  expect(writes).toEqual([{ axis: "relative" }]);
});

it("writes nothing any more once the page is left", () => {
  const { writes, page } = visit({});
  act(() => changeSettings({ smoothing: 0.4 }));
  page.unmount();
  rest();
  expect(writes).toEqual([]);
});
