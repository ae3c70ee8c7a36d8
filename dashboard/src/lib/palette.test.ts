import { expect, it } from "vitest";
import { colourName, dashOf, slotsOf } from "./palette";

it("gives slots in order, keeps them while others leave, and fills the gaps", () => {
  const first = slotsOf(["a", "b", "c"], new Map());
  expect([...first]).toEqual([
    ["a", 0],
    ["b", 1],
    ["c", 2],
  ]);
  const second = slotsOf(["c", "a"], first);
  expect(Object.fromEntries(second)).toEqual({ a: 0, c: 2 });
  expect(Object.fromEntries(slotsOf(["c", "a", "d", "e"], second))).toEqual({ a: 0, c: 2, d: 1, e: 3 });
});

it("tells 20 jobs apart by colour and dash", () => {
  const looks = Array.from({ length: 20 }, (_, slot) => `${colourName(slot)} ${dashOf(slot)}`);
  expect(new Set(looks).size).toBe(20);
});
