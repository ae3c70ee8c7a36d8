import { expect, it } from "vitest";
import { GREY, RAMP, RAMP_COLOURS } from "@/lib/palette";
import { plainSlots, rampOf } from "./colouring";

const settings = (values: (string | undefined)[]) =>
  new Map(
    values.map((value, place) => [`${place}`, new Map<string, string>(value === undefined ? [] : [["lr", value]])]),
  );
const places = (values: (string | undefined)[]) =>
  [...(rampOf("lr", settings(values))?.slots.values() ?? [])].map((slot) => (slot === GREY ? null : slot - RAMP));

it.each([
  [
    ["0", "5", "10"],
    [0, 8, 15],
  ],
  [
    ["1e-4", "1e-3", "1e-2"],
    [0, 8, 15],
  ],
  [
    ["b", "a", "c"],
    [8, 0, 15],
  ],
  [
    ["1", undefined, "2"],
    [0, null, 15],
  ],
  [
    ["7", "7"],
    [0, 0],
  ],
  [[undefined], []],
])("colours %j by value: %j", (values, slots) => {
  expect(places(values)).toEqual(slots);
});

it("names both ends of the ramp", () => {
  expect(rampOf("lr", settings(["3", "20", "1e0"]))).toMatchObject({ low: "1e0", high: "20" });
  expect(RAMP_COLOURS).toBe(16);
});

it("gives each run its slot as long as 24 are told apart, and grey to more", () => {
  const ids = Array.from({ length: 25 }, (_, place) => `${place}`);
  const slots = new Map(ids.map((id, place) => [id, place]));
  expect([...plainSlots(ids.slice(1), slots).values()]).toEqual(Array.from({ length: 24 }, (_, place) => place + 1));
  expect(new Set(plainSlots(ids, slots).values())).toEqual(new Set([GREY]));
});
