import { expect, it } from "vitest";
import { clampedWidth, widthAfter } from "./drawer-size";

it("is 320 to 800 px wide, and grows to the left by keys", () => {
  expect([100, 500.4, 5_000, Number.NaN].map(clampedWidth)).toEqual([320, 500, 800, 460]);
  expect(widthAfter("ArrowLeft", 790)).toBe(800);
  expect(widthAfter("ArrowRight", 400)).toBe(380);
  expect([widthAfter("Home", 400), widthAfter("End", 400), widthAfter("a", 400)]).toEqual([320, 800, null]);
});
