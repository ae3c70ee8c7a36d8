// @vitest-environment jsdom
import { beforeEach, expect, it } from "vitest";
import { changeSettings, readSettings, toggled } from "./settings";

beforeEach(() => localStorage.clear());

it("keeps what was changed, and leaves the rest as it was", () => {
  changeSettings({ smoothing: 0.6 });
  changeSettings({ pinned: toggled(readSettings().pinned, "train/loss") });
  expect(readSettings()).toMatchObject({ smoothing: 0.6, axis: "step", pinned: ["train/loss"], marks: true });
  changeSettings({ pinned: toggled(readSettings().pinned, "train/loss") });
  expect(readSettings().pinned).toEqual([]);
});

it("is the same object as long as nothing changes, or a page would draw forever", () => {
  expect(readSettings()).toBe(readSettings());
});

it.each(["no json", "null", '{"smoothing":"much","axis":7,"pinned":"x","folded":[1]}'])(
  "survives what it does not understand: %s",
  (text) => {
    localStorage.setItem("lockstep.charts", text);
    expect(readSettings()).toMatchObject({ smoothing: 0, axis: "step", pinned: [] });
  },
);

it("never smooths so much that nothing moves any more", () => {
  localStorage.setItem("lockstep.charts", '{"smoothing": 1}');
  expect(readSettings().smoothing).toBe(0.999);
});
