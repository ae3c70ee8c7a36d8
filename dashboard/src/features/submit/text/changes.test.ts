import { describe, expect, it } from "vitest";
import { cloneBody } from "./changes";
import { pathOf } from "./pointer";
import { readText } from "./read";

const BEFORE = `name: first
kind: train
code: {git: "https://example.org/a", ref: main}
train:
  task: causal_lm
  task_args: {layers: 2, width: 128}
  steps: 10
  seed: 9223372036854775807
  init_from: job:last
  optimizer: {name: adamw, lr: 0.1, betas: [0.9, 0.95]}
labels: {a: b}
`;
const FULL = {
  labels: {},
  train: { steps: null, epochs: 3, seed: 1337, task_args: { layers: 2 }, optimizer: { name: "sgd", lr: 1.0 } },
};

function sent(after: string, full: unknown = FULL): Record<string, unknown> {
  return JSON.parse(cloneBody(readText(BEFORE), readText(after), full)).set;
}

/** What the service does with a clone's changes, over JSON as it holds it. */
function applied(document: unknown, set: Record<string, unknown>): unknown {
  const copy = structuredClone(document) as Record<string, unknown>;
  for (const [pointer, value] of Object.entries(set)) {
    const path = pathOf(pointer);
    let here = copy;
    for (const part of path.slice(0, -1)) {
      here[part] ??= {};
      here = here[part] as Record<string, unknown>;
    }
    here[path.at(-1) as string] = value;
  }
  return copy;
}

describe("what a clone sends", () => {
  it("is nothing where nothing changed, whatever the text looks like", () => {
    expect(sent(BEFORE.replace("steps: 10", "steps:   10 # ten"))).toEqual({});
  });

  it("is the single values that changed, as they were written", () => {
    const after = BEFORE.replace("0.1", "1.0e-4").replace("a: b", "a: c, d: 'e'");
    expect(cloneBody(readText(BEFORE), readText(after), FULL)).toBe(
      '{"set":{"/train/optimizer/lr":1.0e-4,"/labels/a":"c","/labels/d":"e"}}',
    );
  });

  it("leaves what was settled then alone, unless it is written anew", () => {
    expect(sent(BEFORE.replace("steps: 10", "steps: 20"))).toEqual({ "/train/steps": 20 });
    expect(sent(BEFORE.replace("job:last", "job:other@5"))).toEqual({ "/train/init_from": "job:other@5" });
    expect(sent(BEFORE.replace("example.org/a", "example.org/b"))).toEqual({
      "/code": { git: "https://example.org/b", ref: "main" },
    });
  });

  it("says what is gone by what leaving it out means, or by the object around it", () => {
    expect(sent(BEFORE.replace("  steps: 10\n", "  epochs: 3\n"))).toEqual({
      "/train/steps": null,
      "/train/epochs": 3,
    });
    expect(sent(BEFORE.replace("labels: {a: b}\n", ""))).toEqual({ "/labels": {} });
    expect(sent(BEFORE.replace(", width: 128", ""))).toEqual({ "/train/task_args": { layers: 2 } });
    expect(sent(BEFORE.replace("name: adamw, lr: 0.1, betas: [0.9, 0.95]", "name: sgd, lr: 1.0"))).toEqual({
      "/train/optimizer": { name: "sgd", lr: 1 },
    });
  });

  it("gives the new text's document when the service applies it to the old one", () => {
    const after = readText("name: second\nkind: script\nscript: {command: [a, b]}\nresources: {gpus: 2}\n");
    const full = { name: "second", kind: "script", train: null, code: null, labels: {}, script: {}, resources: {} };
    const set = JSON.parse(cloneBody(readText(BEFORE), after, full)).set;
    expect(applied(readText(BEFORE).value, set)).toEqual({
      ...(after.value as object),
      code: null,
      train: null,
      labels: {},
    });
  });
});
