// @vitest-environment jsdom
import { beforeEach, expect, it } from "vitest";
import { USUAL } from "@/lib/look";
import { changeSettings, readSettings, toggled } from "./settings";

beforeEach(() => localStorage.clear());

it("keeps what was changed, and leaves the rest as it was", () => {
  changeSettings({ look: { ...USUAL, smoothing: 0.6 } });
  changeSettings({ pinned: toggled(readSettings().pinned, "train/loss") });
  expect(readSettings()).toMatchObject({ look: { smoothing: 0.6, axis: "step" }, pinned: ["train/loss"], marks: true });
  changeSettings({ pinned: toggled(readSettings().pinned, "train/loss") });
  expect(readSettings().pinned).toEqual([]);
});

it("is the same object as long as nothing changes, or a page would draw forever", () => {
  expect(readSettings()).toBe(readSettings());
});

it.each([
  "no json",
  "null",
  '{"look":{"smoothing":"much","axis":7,"clipped":1},"pinned":"x"}',
  '{"look":7,"axis":"wall"}',
])("survives what it does not understand: %s", (text) => {
  localStorage.setItem("lockstep.charts", text);
  expect(readSettings()).toMatchObject({ look: USUAL, pinned: [] });
});

it("never smooths so much that nothing moves any more", () => {
  localStorage.setItem("lockstep.charts", '{"look": {"smoothing": 1}}');
  expect(readSettings().look.smoothing).toBe(0.999);
});
