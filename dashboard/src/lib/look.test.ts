import { expect, it } from "vitest";
import { type Chosen, chosenIn, isPlain, isSameLook, lookOf, readLook } from "./look";

it.each([
  [{}, {}],
  [
    { smoothing: 0.6, axis: "wall" },
    { smoothing: 0.6, axis: "wall" },
  ],
  [{ axis: "tokens" }, { axis: "tokens" }],
  [{ smoothing: 1, axis: "step" }, { axis: "step" }],
  [{ smoothing: 0.6, axis: "step" }, { smoothing: 0.6 }],
  [{ smoothing: "much", axis: 7, log: { a: 1 } }, {}],
  [{ log: "train/loss,train/lr,train/loss" }, { log: "train/loss,train/lr" }],
  [{ log: ["a,b", "c"] }, { log: ["a,b", "c"] }],
  [{ log: 7 }, { log: "7" }],
  [{ zoom: "step:10:20,nothing:1:2,wall:9:3,relative:a:b" }, { zoom: "step:10:20" }],
  [{ y: "train/loss:0:2,broken" }, { y: "train/loss:0:2" }],
])("the address %j looks like %j", (search, look) => {
  expect(readLook(search)).toEqual(look);
});

const USUAL: Chosen = { smoothing: 0, axis: "step", logarithmic: [], clipped: [], zooms: {}, ranges: {} };

it.each<Chosen>([
  USUAL,
  { ...USUAL, smoothing: 0.9, axis: "samples", logarithmic: ["train/loss"] },
  { ...USUAL, smoothing: 0.001, axis: "relative", logarithmic: ["a", "b"], clipped: ["b"] },
  { ...USUAL, logarithmic: ["a, b"] },
  { ...USUAL, zooms: { step: { from: 10, to: 200.5 }, wall: { from: 1_790_000_000.125, to: 1_790_000_001.5 } } },
  { ...USUAL, ranges: { "train/loss": { from: -0.5, to: 1e-7 }, "a:b": { from: 0, to: 2 } } },
])("what is chosen comes back from its address: %j", (chosen) => {
  // As an address brings it: through text.
  const address = JSON.parse(JSON.stringify(lookOf(chosen)));
  expect(chosenIn(readLook(address))).toEqual(chosen);
  expect(isSameLook(readLook(address), lookOf(chosen))).toBe(true);
});

it("tells looks apart, and says nothing where all is as usual", () => {
  const usual = USUAL;
  expect(isPlain(lookOf(usual))).toBe(true);
  for (const other of [
    { smoothing: 0.1 },
    { axis: "wall" as const },
    { logarithmic: ["a"] },
    { zooms: { step: { from: 1, to: 2 } } },
  ]) {
    expect(isSameLook(lookOf(usual), lookOf({ ...usual, ...other }))).toBe(false);
    expect(isPlain(lookOf({ ...usual, ...other }))).toBe(false);
  }
});

it("stays readable however many are logarithmic", () => {
  const logarithmic = Array.from({ length: 500 }, (_, index) => `metric${index}`);
  const look = lookOf({ ...USUAL, logarithmic });
  expect(chosenIn(look).logarithmic).toHaveLength(50);
  expect(isSameLook(look, readLook({ ...look }))).toBe(true);
});
