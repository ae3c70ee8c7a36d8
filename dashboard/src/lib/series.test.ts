import { expect, it } from "vitest";
import { axisUnit, type Described, figure, grouped, matches, measured, UNKNOWN } from "./series";

const series = (name: string, changes: Partial<Described> = {}): Described => ({ ...UNKNOWN, name, ...changes });
const names = (found: readonly Described[]) => found.map(({ name }) => name);

it("groups by the group of the service alone, in its order", () => {
  const found = grouped([series("b/x", { group: "quality" }), series("a/y"), series("c", { group: "quality" })]);
  expect(found.map(({ name, series: of }) => [name, names(of)])).toEqual([
    ["quality", ["b/x", "c"]],
    ["metrics", ["a/y"]],
  ]);
});

it.each([
  ["train/loss", "", true],
  ["train/loss", "LOSS", true],
  ["train/grad_norm", "norm train", true],
  ["train/loss", "loss eval", false],
])("%s under the search %o: %s", (metric, search, found) => {
  expect(matches(metric, search)).toBe(found);
});

it.each([
  ["number", "nats", 2.5, "2.5", "2.5 nats", "nats"],
  ["number", "", 2.5, "2.5", "2.5", ""],
  ["count", "tokens", 12_345, "12,345", "12,345 tokens", "tokens"],
  ["bytes", "bytes", 1_610_612_736, "1.50 GiB", "1.50 GiB", ""],
  ["bytes", "bytes/s", 1_024, "1.00 KiB/s", "1.00 KiB/s", "bytes/s"],
  ["percent", "%", 45.5, "45.5 %", "45.5 %", "%"],
  ["seconds", "s", 0.04231, "0.04231 s", "0.04231 s", ""],
  ["seconds", "s", 125, "2 min 05 s", "2 min 05 s", ""],
  ["bytes", "bytes", Number.NaN, "NaN", "NaN", ""],
] as const)("%s in %o: %d", (kind, unit, value, short, whole, beside) => {
  expect([figure(value, { kind, unit }), measured(value, { kind, unit }), axisUnit({ kind, unit })]).toEqual([
    short,
    whole,
    beside,
  ]);
});
