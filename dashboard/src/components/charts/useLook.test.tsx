import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Look } from "@/lib/look";
import { changeSettings, readSettings } from "./settings";
import { useLookState } from "./useLook";

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
      useLookState(address, (look) => {
        writes.push(look);
        page.rerender({ address: look });
      }),
    { initialProps: { address: start } },
  );
  return { writes, page, look: () => page.result.current };
}

const rest = () => act(() => vi.advanceTimersByTime(1_000));

it("shows what an address says, whole, and leaves a person's habits as they are", () => {
  changeSettings({ smoothing: 0.9, logarithmic: ["train/lr"], pinned: ["train/loss"] });
  const habits = readSettings();
  const { writes, look, page } = visit({ axis: "wall", zoom: "wall:10:20", y: "a:b:0:2" });
  rest();
  expect(look()).toMatchObject({ smoothing: 0, axis: "wall", logarithmic: [], zooms: { wall: { from: 10, to: 20 } } });
  expect(look().ranges).toEqual({ "a:b": { from: 0, to: 2 } });
  expect(readSettings()).toBe(habits);
  expect(writes).toEqual([]);
  page.unmount();
  // The next page of this person is as it was before the link.
  expect(visit({}).look()).toMatchObject({ smoothing: 0.9, logarithmic: ["train/lr"] });
});

it("has a person's habits where the address says nothing, and writes them there", () => {
  changeSettings({ smoothing: 0.9, logarithmic: ["train/loss"] });
  const { writes, look } = visit({});
  rest();
  expect(look().smoothing).toBe(0.9);
  expect(writes).toEqual([{ smoothing: 0.9, log: "train/loss" }]);
});

it("makes a habit of what a person changes, and of nothing else that the link said", () => {
  changeSettings({ logarithmic: ["mine"] });
  const { look } = visit({ smoothing: 0.97, log: "theirs" });
  act(() => look().toggle("logarithmic", "added"));
  act(() => look().change({ axis: "wall" }));
  expect(look()).toMatchObject({ smoothing: 0.97, axis: "wall", logarithmic: ["theirs", "added"] });
  expect(readSettings()).toMatchObject({ smoothing: 0, axis: "wall", logarithmic: ["mine", "added"] });
});

it("keeps the zoom in the address, and never as a habit", () => {
  const { writes, look } = visit({});
  act(() => look().change({ zooms: { step: { from: 10, to: 200.5 } } }));
  rest();
  expect(writes).toEqual([{ zoom: "step:10:200.5" }]);
  expect(visit(writes[0] as Look).look().zooms).toEqual({ step: { from: 10, to: 200.5 } });
  expect(visit({}).look().zooms).toEqual({});
});

it("follows what is chosen, a slider that is drawn along as one change", () => {
  const { writes, look } = visit({ smoothing: 0.5 });
  for (const smoothing of [0.6, 0.7, 0.8]) {
    act(() => look().change({ smoothing }));
    act(() => vi.advanceTimersByTime(100));
  }
  expect(writes).toEqual([]);
  rest();
  act(() => look().change({ smoothing: 0 }));
  rest();
  expect(writes).toEqual([{ smoothing: 0.8 }, {}]);
});

it("follows an address that changes under it, as by the back button", () => {
  const { writes, look, page } = visit({ smoothing: 0.5 });
  page.rerender({ address: { smoothing: 0.7, zoom: "step:1:2" } });
  rest();
  expect(look()).toMatchObject({ smoothing: 0.7, zooms: { step: { from: 1, to: 2 } } });
  expect(writes).toEqual([]);
});

it("writes in its time also where the page is drawn again and again", () => {
  const { writes, page, look } = visit({});
  act(() => look().change({ axis: "relative" }));
  for (let round = 0; round < 10; round += 1) {
    act(() => vi.advanceTimersByTime(100));
    if (writes.length === 0) page.rerender({ address: {} });
  }
  expect(writes).toEqual([{ axis: "relative" }]);
});

it("writes nothing any more once the page is left", () => {
  const { writes, page, look } = visit({});
  act(() => look().change({ smoothing: 0.4 }));
  page.unmount();
  rest();
  expect(writes).toEqual([]);
});
