import { describe, expect, it } from "vitest";
import { removeAt, renameAt, same, setAt } from "./edit";
import { readText, valueAt } from "./read";
import { Typed } from "./write";

const TEXT = `# Handwritten digits.
name: digits # its name

kind: train
resources: {gpus: 2}   # two
train:
  # what it learns
  task: image_classification
  batch: {size: 64,  micro_size: 8}
  optimizer:
    lr: 3.0e-3 # the paper's
    # why so little
    weight_decay: 0.01
  epochs: 12
# the end
`;

/** The lines that differ, as a person would see them in a diff of texts whose line count is the same or nearly so. */
function changed(before: string, after: string): { gone: string[]; come: string[] } {
  const [one, other] = [before.split("\n"), after.split("\n")];
  return { gone: one.filter((line) => !other.includes(line)), come: other.filter((line) => !one.includes(line)) };
}

describe("setting a value", () => {
  it.each<[string, (string | number)[], unknown, string, string]>([
    ["a text", ["name"], "second", "name: digits # its name", "name: second # its name"],
    [
      "a number in brackets",
      ["resources", "gpus"],
      new Typed("8"),
      "resources: {gpus: 2}   # two",
      "resources: {gpus: 8}   # two",
    ],
    [
      "a number as it is typed",
      ["train", "optimizer", "lr"],
      new Typed("1.0e-4"),
      "    lr: 3.0e-3 # the paper's",
      "    lr: 1.0e-4 # the paper's",
    ],
    [
      "an object for a number",
      ["resources", "gpus"],
      { min: 1, max: 8 },
      "resources: {gpus: 2}   # two",
      "resources: {gpus: {min: 1, max: 8}}   # two",
    ],
    ["a text that looks like a number", ["name"], "8", "name: digits # its name", 'name: "8" # its name'],
    ["a text with signs", ["name"], "a: b # c", "name: digits # its name", 'name: "a: b # c" # its name'],
  ])("of %s touches its own line only", (_, path, value, gone, come) => {
    expect(changed(TEXT, setAt(TEXT, path, value))).toEqual({ gone: [gone], come: [come] });
  });

  it("adds a field where its neighbours are, behind those it usually follows", () => {
    expect(setAt(TEXT, ["train", "seed"], new Typed("7"))).toBe(
      TEXT.replace("  epochs: 12\n", "  epochs: 12\n  seed: 7\n"),
    );
    expect(setAt(TEXT, ["project"], "vision", ["name", "project", "kind"])).toBe(
      TEXT.replace("# its name\n", "# its name\nproject: vision\n"),
    );
    expect(setAt(TEXT, ["resources", "nodes"], 2)).toBe(TEXT.replace("{gpus: 2}", "{gpus: 2, nodes: 2}"));
  });

  it("makes the objects on the way", () => {
    expect(setAt(TEXT, ["train", "checkpoint", "every_steps"], new Typed("50"))).toContain(
      "\n  checkpoint: {every_steps: 50}\n",
    );
    expect(setAt("", ["train", "batch", "size"], new Typed("64"))).toBe("train: {batch: {size: 64}}\n");
    expect(setAt("# mine\n", ["name"], "x")).toBe("# mine\nname: x\n");
    expect(setAt("train:\nname: x\n", ["train", "seed"], 1)).toBe("train: {seed: 1}\nname: x\n");
    expect(setAt("labels: {}\n", ["labels", "team"], "a")).toBe("labels: {team: a}\n");
  });

  it("fills a name that has nothing behind it, and leaves what comes after it", () => {
    expect(setAt("a: # soon\nb: 1\n", ["a"], 5)).toBe("a: 5 # soon\nb: 1\n");
    expect(setAt("a: {b: , c: 1}\n", ["a", "b"], 5)).toBe("a: {b: 5, c: 1}\n");
  });

  it("falls back on the Document where text cannot be cut: block texts and aliases", () => {
    const block = "a: |\n  one\n  two\nb: 1 # kept\n";
    const after = setAt(block, ["a"], "three");
    expect(readText(after).value).toEqual({ a: "three", b: 1 });
    expect(after).toContain("# kept");
    const alias = "x: &x {p: 1}\ny: *x\n";
    expect(readText(setAt(alias, ["y", "p"], 2)).value).toEqual({ x: { p: 1 }, y: { p: 2 } });
  });

  it("leaves a text alone that is no document", () => {
    expect(setAt("a: [1\n", ["a"], 2)).toBe("a: [1\n");
  });
});

describe("removing a value", () => {
  it("takes its line, or its place in brackets", () => {
    expect(removeAt(TEXT, ["train", "epochs"])).toBe(TEXT.replace("  epochs: 12\n", ""));
    expect(removeAt(TEXT, ["train", "batch", "size"])).toBe(TEXT.replace("size: 64,  ", ""));
    expect(removeAt(TEXT, ["train", "batch", "micro_size"])).toBe(TEXT.replace(",  micro_size: 8", ""));
    expect(removeAt(TEXT, ["train", "optimizer"])).not.toContain("lr:");
  });

  it("takes the object along that it leaves empty, but no section of the spec", () => {
    const text = "train:\n  a: 1\n  checkpoint: {every_steps: 5}\nscript:\n  command: [x]\n";
    expect(removeAt(text, ["train", "checkpoint", "every_steps"])).toBe("train:\n  a: 1\nscript:\n  command: [x]\n");
    expect(removeAt(text, ["script", "command"])).toContain("script: {}\n");
  });

  it("does nothing where there is nothing", () => {
    expect(removeAt(TEXT, ["train", "nothing", "here"])).toBe(TEXT);
  });
});

it("renames a field in its place", () => {
  expect(renameAt("labels: {a: 1, b: 2} # c\n", ["labels", "a"], "team")).toBe("labels: {team: 1, b: 2} # c\n");
  expect(renameAt("labels: {a: 1, b: 2}\n", ["labels", "a"], "b")).toBe("labels: {a: 1, b: 2}\n");
});

describe("any edit of any text", () => {
  /** A small generator with a seed (mulberry32), so that a failure can be seen again. */
  function random(seed: number): () => number {
    let state = seed;
    return () => {
      state = (state + 0x6d2b79f5) | 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
    };
  }

  const SCALARS = ["1", "3.0e-3", "true", "null", "some text", '"8"', "'a: b'", "auto", "a.b/c:D", "~"];
  const PUTS: unknown[] = [
    1,
    "8",
    "x y",
    "a # b",
    "",
    true,
    null,
    [1, "two"],
    { p: 1, q: "r" },
    new Typed("3.0e-4"),
    new Typed("1e-"),
    new Typed(", ]"),
  ];

  function makeText(next: () => number): string {
    const pick = <T>(from: readonly T[]): T => from[Math.floor(next() * from.length)] as T;
    let comment = 0;
    const tail = () => (next() < 0.3 ? ` # c${comment++}.` : "");
    const lines: string[] = [];
    const block = (indent: string, depth: number) => {
      const count = 1 + Math.floor(next() * 4);
      for (let index = 0; index < count; index += 1) {
        if (next() < 0.2) lines.push(`${indent}# c${comment++}.`);
        if (next() < 0.1) lines.push("");
        const name = `${indent}k${index}:`;
        const kind = next();
        if (kind < 0.25 && depth < 3) {
          lines.push(`${name}${tail()}`);
          block(`${indent}  `, depth + 1);
        } else if (kind < 0.45) {
          lines.push(
            `${name} {${Array.from({ length: Math.floor(next() * 3) }, (_, i) => `k${i}: ${pick(SCALARS)}`).join(", ")}}${tail()}`,
          );
        } else if (kind < 0.55) {
          lines.push(
            `${name} [${Array.from({ length: Math.floor(next() * 3) }, () => pick(SCALARS)).join(", ")}]${tail()}`,
          );
        } else if (kind < 0.62) {
          lines.push(`${name}${tail()}`, `${indent}  - ${pick(SCALARS)}${tail()}`, `${indent}  - two`);
        } else if (kind < 0.68) lines.push(`${name}${tail()}`);
        else lines.push(`${name} ${pick(SCALARS)}${tail()}`);
      }
    };
    block("", 0);
    return `${lines.join("\n")}${next() < 0.8 ? "\n" : ""}`;
  }

  const comments = (text: string): string[] => text.match(/# c\d+\./g) ?? [];
  const plain = (value: unknown) => JSON.parse(JSON.stringify(value ?? null)) as Record<string, unknown>;

  it("gives the value that was put, changes no other value, and keeps every comment outside of it", () => {
    for (let seed = 1; seed <= 400; seed += 1) {
      const next = random(seed);
      const text = makeText(next);
      const spec = readText(text);
      expect(spec.unreadable, `${seed}\n${text}`).toBeNull();
      const path = Array.from({ length: 1 + Math.floor(next() * 3) }, () => `k${Math.floor(next() * 5)}`);
      const around = path.slice(0, -1);
      // A list has no fields; whoever asks for one gets an object in its place, which is not what is tried here.
      if (around.some((_, index) => Array.isArray(valueAt(spec.value, path.slice(0, index + 1))))) continue;
      const before = valueAt(spec.value, path);
      const put = PUTS[Math.floor(next() * PUTS.length)];
      const after = setAt(text, path, put);
      const where = `seed ${seed}, ${path.join(".")} := ${JSON.stringify(put)}\n${text}\n----\n${after}`;

      const reference = plain(spec.value);
      let here = reference;
      for (const part of around) {
        if (typeof here[part] !== "object" || here[part] === null) here[part] = {};
        here = here[part] as Record<string, unknown>;
      }
      const found = valueAt(readText(after).value, path);
      here[path.at(-1) as string] = found;
      expect(same(readText(after).value, reference), where).toBe(true);
      if (put instanceof Typed) expect<unknown[]>([put.text, Number(put.text)], where).toContain(found);
      else expect(found, where).toEqual(put);
      if (typeof before !== "object" || before === null) expect(comments(after), where).toEqual(comments(text));

      const removed = removeAt(text, path);
      const said = `seed ${seed}, without ${path.join(".")}\n${text}\n----\n${removed}`;
      expect(readText(removed).unreadable, said).toBeNull();
      expect(valueAt(readText(removed).value, path), said).toBeUndefined();
      const lost = comments(text).filter((comment) => !comments(removed).includes(comment));
      if (typeof before !== "object" && path.length === 1) expect(lost.length, said).toBeLessThanOrEqual(1);
      // Put back, it is the document that it was (an object that went along comes back with it).
      if (before !== undefined) expect(same(readText(setAt(removed, path, before)).value, spec.value), said).toBe(true);
    }
  });
});
