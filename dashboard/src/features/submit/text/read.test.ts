import { describe, expect, it } from "vitest";
import { jsonAt, readText, sourceAt, valueAt } from "./read";

describe("the JSON that is sent", () => {
  it("keeps the digits as they were written", () => {
    const spec = readText("a: 1.0\nseed: 9223372036854775807\nlr: 3.0e-4\nhex: 0x10\nplus: +5\ndot: .5\n");
    expect(spec.json).toBe('{"a":1.0,"seed":9223372036854775807,"lr":3.0e-4,"hex":16,"plus":5,"dot":0.5}');
  });

  it("has texts, truths, nothing, lists, objects and what an alias stands for", () => {
    const spec = readText('a: &x {b: [true, null, "3e-4", ~]}\nc: *x\n"d e": ""\nf:\n');
    expect(JSON.parse(spec.json)).toEqual({
      a: { b: [true, null, "3e-4", null] },
      c: { b: [true, null, "3e-4", null] },
      "d e": "",
      f: null,
    });
    expect(jsonAt(spec, ["a", "b", 2])).toBe('"3e-4"');
    expect(jsonAt(spec, ["nowhere"])).toBeNull();
  });

  it("of an empty text is null", () => {
    expect(readText("").json).toBe("null");
    expect(readText("# nothing yet\n").json).toBe("null");
  });
});

describe("a text that is no document", () => {
  it.each([
    ["a: 1\nb: [1, 2\nc: 3\n", 3],
    ["a: 1\na: 2\n", 2],
    ["a: 1\n---\nb: 2\n", 2],
    ["a: 1\nb: .inf\n", 2],
    ["a: *missing\n", 1],
  ])("%j is said to fail on line %d", (text, line) => {
    const { unreadable } = readText(text);
    expect(unreadable?.line).toBe(line);
    expect(unreadable?.message).not.toBe("");
  });

  it("does not let a few lines mean billions of values", () => {
    const bomb = Array.from(
      { length: 12 },
      (_, i) =>
        `a${i}: &a${i} [${i === 0 ? "x" : `*a${i - 1}, *a${i - 1}, *a${i - 1}, *a${i - 1}, *a${i - 1}, *a${i - 1}`}]`,
    );
    expect(readText(bomb.join("\n")).unreadable?.message).toContain("20000 values");
  });
});

it("shows numbers in a field as they were written, and lists not at all", () => {
  const spec = readText("lr: 3.0e-3\nname: '8'\nnone:\nlist: [1]\nyes: true\n");
  expect(["lr", "name", "none", "list", "yes", "missing"].map((name) => sourceAt(spec, [name]))).toEqual([
    "3.0e-3",
    "8",
    "",
    null,
    "true",
    "",
  ]);
});

it("finds values without looking into what objects inherit", () => {
  expect(valueAt({ a: [{ b: 1 }] }, ["a", 0, "b"])).toBe(1);
  expect(valueAt({}, ["constructor"])).toBeUndefined();
  expect(valueAt("text", ["length"])).toBeUndefined();
});
