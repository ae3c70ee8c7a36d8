import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { randomFrom } from "@/testing/random";
import { type SpecLine, specLines, yamlOf } from "./spec-lines";

const SUBMITTED = {
  name: "gpt",
  kind: "train",
  code: { git: "https://example.org/a.git", ref: "main" },
  resources: { gpus: "2" },
  train: { task: "lm", batch: { size: 64 }, clip_grad_norm: null, optimizer: { lr: 1e-3 } },
  labels: { team: "nlp" },
};
const WHOLE = {
  name: "gpt",
  project: "default",
  kind: "train",
  code: { git: "https://example.org/a.git", ref: "3f".repeat(20) },
  resources: { gpus: 2, gpu_type: null },
  train: {
    task: "lm",
    task_args: {},
    batch: { size: 64, micro_size: "auto" },
    clip_grad_norm: null,
    optimizer: { name: "adamw", lr: 0.001, betas: [0.9, 0.999] },
  },
  labels: { team: "nlp" },
};

const text = (lines: readonly SpecLine[]) => lines.map((line) => `${line.text}\n`).join("");
const of = (origin: SpecLine["origin"]) =>
  specLines(WHOLE, SUBMITTED).flatMap((line) => (line.origin === origin ? [line.text.trim()] : []));

describe("the lines of a spec", () => {
  it("are the document", () => {
    expect(parse(text(specLines(WHOLE, SUBMITTED)))).toEqual(WHOLE);
  });

  it("say which values were not submitted, wherever they are", () => {
    expect(of("default")).toEqual([
      "project: default",
      "gpu_type: null",
      "task_args: {}",
      "micro_size: auto",
      "name: adamw",
      "betas:",
      "- 0.9",
      "- 0.999",
    ]);
  });

  it("say what was settled, and what stood there", () => {
    expect(of("settled")).toEqual([`ref: ${"3f".repeat(20)}`]);
    expect(specLines(WHOLE, SUBMITTED).find(({ origin }) => origin === "settled")?.asked).toBe("main");
  });

  it("take what was submitted for submitted, also null and a number in quotes", () => {
    expect(of("submitted")).toEqual(
      expect.arrayContaining(["clip_grad_norm: null", "gpus: 2", "team: nlp", "labels:"]),
    );
  });

  it("are all submitted where nothing was left out", () => {
    expect(new Set(specLines(WHOLE, WHOLE).map(({ origin }) => origin))).toEqual(new Set(["submitted"]));
    expect(new Set(specLines(WHOLE, {}).map(({ origin }) => origin))).toEqual(new Set(["default"]));
  });
});

/** Documents with keys and values that YAML has to quote or break, and the same with parts left out. */
function randomSpec(random: () => number, depth: number): Record<string, unknown> {
  const keys = ["a", "b c", "true", "12", "key: x", "#", "é", "long"];
  const values = [1, 0.5, null, true, "", "no", "a: b", "two\nlines # default\n", "x ".repeat(80), [], ["a", 1], {}];
  return Object.fromEntries(
    keys
      .filter(() => random() < 0.6)
      .map((key) => [
        key,
        depth > 0 && random() < 0.4 ? randomSpec(random, depth - 1) : values[Math.floor(random() * values.length)],
      ]),
  );
}

function thinned(random: () => number, spec: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(spec)
      .filter(() => random() < 0.7)
      .map(([key, value]) => [
        key,
        typeof value === "object" && value !== null && !Array.isArray(value)
          ? thinned(random, value as Record<string, unknown>)
          : value,
      ]),
  );
}

it("are the document, and its submitted lines what was submitted, for any document", () => {
  const random = randomFrom(11);
  for (let round = 0; round < 60; round += 1) {
    const whole = randomSpec(random, 3);
    const submitted = thinned(random, whole);
    const lines = specLines(whole, submitted);
    if (Object.keys(whole).length === 0) continue;
    expect(parse(text(lines))).toEqual(whole);
    expect(parse(yamlOf(whole))).toEqual(whole);
    expect(lines.some(({ origin }) => origin === "settled")).toBe(false);
    const kept = lines.filter(({ origin }) => origin === "submitted");
    // A section of which nothing inside was submitted is a key alone, which is read as null.
    expect(withoutEmpty(parse(text(kept)) ?? {})).toEqual(withoutEmpty(submitted));
  }
});

function withoutEmpty(value: unknown): unknown {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value;
  const entries = Object.entries(value).map(([key, one]) => [key, withoutEmpty(one)] as const);
  const isEmpty = (one: unknown) =>
    one === null || (typeof one === "object" && !Array.isArray(one) && Object.keys(one as object).length === 0);
  return Object.fromEntries(entries.filter(([, one]) => !isEmpty(one)));
}
