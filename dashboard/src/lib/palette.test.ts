import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { contrast, difference, SIGHTS } from "@/testing/sight";
import { BASELINE, COLOURS, colourName, dashOf, GREY, RAMP, RAMP_COLOURS, rampSlot, slotsOf } from "./palette";

/** Of any two colours. The eight colours before had pairs at 1. */
const DIFFERENCE_MIN = 22;

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

it("has a place on the ramp for each share, and looks of its own for the baseline and for grey", () => {
  expect([-1, 0, 0.5, 1, 2].map((share) => rampSlot(share) - RAMP)).toEqual([0, 0, 8, 15, 15]);
  expect(colourName(rampSlot(1))).toBe("--ramp-16");
  expect([colourName(BASELINE), colourName(GREY)]).toEqual(["--ink", "--line-strong"]);
  expect([dashOf(BASELINE).length > 0, dashOf(GREY), dashOf(RAMP)]).toEqual([true, [], []]);
});

describe.each(["light", "dark"])("the colours of curves in the %s theme", (theme) => {
  const of = (file: string, name: RegExp) => {
    const text = readFileSync(new URL(file, import.meta.url), "utf8");
    const rules = text.slice(text.indexOf(`"${theme}"`)).split("}")[0] as string;
    return [...rules.matchAll(name)].map(([, colour]) => colour as string);
  };
  const curves = of("../components/charts/palette.css", /--curve-\d: (#\w{6});/g);
  const [panel] = of("../app/tokens.css", /--panel: (#\w{6});/g) as [string];

  it("are as many as the slots, and stand out from the panel", () => {
    expect(curves).toHaveLength(COLOURS);
    for (const curve of curves) expect(contrast(curve, panel), curve).toBeGreaterThanOrEqual(3);
  });

  it("are a ramp that stands out from the panel", () => {
    const ramp = of("../components/charts/palette.css", /--ramp-\d+: (#\w{6});/g);
    expect(ramp).toHaveLength(RAMP_COLOURS);
    for (const colour of ramp) expect(contrast(colour, panel), colour).toBeGreaterThanOrEqual(3);
  });

  it.each(Object.entries(SIGHTS))("are told apart by %s sight", (_, sight) => {
    const pairs = curves.flatMap((one, place) => curves.slice(place + 1).map((other) => [one, other] as const));
    for (const [one, other] of pairs)
      expect(difference(one, other, sight), `${one} ${other}`).toBeGreaterThanOrEqual(DIFFERENCE_MIN);
  });
});
