import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type Look, USUAL } from "@/lib/look";
import { changeSettings, readSettings } from "./settings";
import { useLookState } from "./useLook";

beforeEach(() => {
  localStorage.clear();
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());

/** A page whose address changes as it is written; opened from another page unless it is the tab's first. */
function visit(start: Look, isFirst = false) {
  const writes: Look[] = [];
  const page = renderHook(
    ({ address }: { address: Look }) =>
      useLookState(
        address,
        (look) => {
          writes.push(look);
          page.rerender({ address: look });
        },
        isFirst,
      ),
    { initialProps: { address: start } },
  );
  return { writes, page, look: () => page.result.current };
}

const rest = () => act(() => vi.advanceTimersByTime(1_000));

const own = { smoothing: 0.9, axis: "wall" as const, logarithmic: ["train/lr"], clipped: [] };

it("shows the look of an address, whole, and leaves the user's default as it is", () => {
  changeSettings({ look: own, pinned: ["train/loss"] });
  const before = readSettings();
  const { writes, look, page } = visit({ axis: "relative", zoom: "wall:10:20", y: "a:b:0:2" });
  rest();
  expect(look()).toMatchObject({ smoothing: 0, axis: "relative", zooms: { wall: { from: 10, to: 20 } } });
  expect(look().ranges).toEqual({ "a:b": { from: 0, to: 2 } });
  expect(readSettings()).toBe(before);
  expect(writes).toEqual([]);
  page.unmount();
  expect(visit({}).look()).toMatchObject(own);
});

it("shows a plain link as usual to a user with a default, and keeps it so on the next page", () => {
  changeSettings({ look: own });
  const { writes, look } = visit({}, true);
  rest();
  expect(look()).toMatchObject(USUAL);
  expect(writes).toEqual([{ axis: "step" }]);
  expect(visit(writes[0] as Look).look()).toMatchObject(USUAL);
});

it("writes the default of the user to the address of a page that is opened from within", () => {
  changeSettings({ look: own });
  const { writes, look } = visit({});
  rest();
  expect(look()).toMatchObject(own);
  expect(writes).toEqual([{ smoothing: 0.9, axis: "wall", log: "train/lr" }]);
  act(() => look().change({ smoothing: 0, axis: "step", logarithmic: [] }));
  rest();
  expect(writes.at(-1)).toEqual({ axis: "step" });
});

it("makes a default of a look only by its button", () => {
  const { look, page } = visit({});
  act(() => look().change({ axis: "wall", smoothing: 0.97 }));
  act(() => look().toggle("clipped", "train/loss"));
  expect(readSettings().look).toEqual(USUAL);
  expect(look().isDefault).toBe(false);
  page.unmount();
  expect(visit({}).look()).toMatchObject(USUAL);
  const other = visit({ axis: "wall", smoothing: 0.97, zoom: "wall:1:2" });
  act(() => other.look().makeDefault());
  expect(other.look().isDefault).toBe(true);
  expect(visit({}).look()).toMatchObject({ axis: "wall", smoothing: 0.97, zooms: {} });
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
