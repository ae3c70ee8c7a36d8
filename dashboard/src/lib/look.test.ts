import { expect, it } from "vitest";
import { chosenIn, isPlain, isSameLook, lookOf, readLook } from "./look";

it.each([
  [{}, {}],
  [
    { smoothing: 0.6, axis: "wall" },
    { smoothing: 0.6, axis: "wall" },
  ],
  [{ axis: "tokens" }, { axis: "tokens" }],
  [{ smoothing: 1, axis: "step" }, {}],
  [{ smoothing: "much", axis: 7, log: { a: 1 } }, {}],
  [{ log: "train/loss,train/lr,train/loss" }, { log: "train/loss,train/lr" }],
  [{ log: ["a,b", "c"] }, { log: ["a,b", "c"] }],
  [{ log: 7 }, { log: "7" }],
])("the address %j looks like %j", (search, look) => {
  expect(readLook(search)).toEqual(look);
});

it.each([
  { smoothing: 0, axis: "step", logarithmic: [] },
  { smoothing: 0.9, axis: "samples", logarithmic: ["train/loss"] },
  { smoothing: 0.001, axis: "relative", logarithmic: ["a", "b"] },
  { smoothing: 0, axis: "step", logarithmic: ["a, b"] },
] as const)("what is chosen comes back from its address: %j", (chosen) => {
  // As an address brings it: through text.
  const address = JSON.parse(JSON.stringify(lookOf(chosen)));
  expect(chosenIn(readLook(address))).toEqual(chosen);
  expect(isSameLook(readLook(address), lookOf(chosen))).toBe(true);
});

it("tells looks apart, and says nothing where all is as usual", () => {
  const usual = { smoothing: 0, axis: "step", logarithmic: [] } as const;
  expect(isPlain(lookOf(usual))).toBe(true);
  for (const other of [{ smoothing: 0.1 }, { axis: "wall" as const }, { logarithmic: ["a"] }]) {
    expect(isSameLook(lookOf(usual), lookOf({ ...usual, ...other }))).toBe(false);
    expect(isPlain(lookOf({ ...usual, ...other }))).toBe(false);
  }
});

it("stays readable however many are logarithmic", () => {
  const logarithmic = Array.from({ length: 500 }, (_, index) => `metric${index}`);
  const look = lookOf({ smoothing: 0, axis: "step", logarithmic });
  expect(chosenIn(look).logarithmic).toHaveLength(50);
  expect(isSameLook(look, readLook({ ...look }))).toBe(true);
});
