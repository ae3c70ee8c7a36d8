import { beforeEach, expect, it, vi } from "vitest";
import { followFingers } from "./touch";

const WIDE = 300;
let over: HTMLElement;
const setSelect = vi.fn();
const reset = vi.fn();
let clock = 0;

beforeEach(() => {
  vi.clearAllMocks();
  clock = 0;
  over = document.createElement("div");
  Object.defineProperty(over, "clientWidth", { value: WIDE });
  Object.defineProperty(over, "clientHeight", { value: 100 });
  over.getBoundingClientRect = () => ({ left: 50 }) as DOMRect;
  followFingers({ over: over as HTMLDivElement, setSelect }, reset, () => clock);
});

function finger(name: string, x: number, { id = 1, type = "touch" } = {}) {
  const event = new Event(`pointer${name}`);
  over.dispatchEvent(Object.assign(event, { clientX: 50 + x, pointerId: id, pointerType: type, isPrimary: id === 1 }));
}

function tap(x: number, ms: number) {
  clock = ms;
  finger("down", x);
  finger("up", x);
}

/** What was chosen in the end. */
const chosen = () => setSelect.mock.calls.filter(([, isDone]) => isDone).map(([{ left, width }]) => [left, width]);

it("zooms to what a finger was drawn along, in either direction, and not beyond the edge", () => {
  finger("down", 40);
  finger("move", 120);
  expect(setSelect).toHaveBeenLastCalledWith({ left: 40, top: 0, width: 80, height: 100 }, false);
  finger("up", 140);
  finger("down", 200);
  finger("move", 0);
  finger("up", -500);
  expect(chosen()).toEqual([
    [40, 100],
    [0, 200],
  ]);
  expect(reset).not.toHaveBeenCalled();
});

it("chooses nothing while a finger trembles, goes back to where it began, or scrolls the page", () => {
  finger("down", 40);
  finger("move", 46);
  finger("up", 46);
  finger("down", 40);
  finger("move", 90);
  finger("up", 43);
  finger("down", 40);
  finger("move", 90);
  finger("cancel", 90);
  finger("up", 90);
  expect(chosen()).toEqual([]);
  expect(setSelect).toHaveBeenLastCalledWith({ left: 0, top: 0, width: 0, height: 100 }, false);
});

it("leaves a second finger to the browser, and a mouse to uPlot", () => {
  finger("down", 40);
  finger("move", 90);
  finger("down", 200, { id: 2 });
  finger("move", 120);
  finger("up", 120);
  finger("up", 220, { id: 2 });
  finger("down", 40, { type: "mouse" });
  finger("move", 90, { type: "mouse" });
  finger("up", 90, { type: "mouse" });
  expect(chosen()).toEqual([]);
});

it("leads back on a double tap, which is quick and at one place", () => {
  tap(100, 0);
  tap(104, 300);
  expect(reset).toHaveBeenCalledTimes(1);
  tap(100, 400);
  expect(reset).toHaveBeenCalledTimes(1);
  tap(100, 2_000);
  tap(200, 2_100);
  expect(reset).toHaveBeenCalledTimes(1);
});
