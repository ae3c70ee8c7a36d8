import { describe, expect, it } from "vitest";
import { betterWay, grouped, matches } from "./metricNames";

describe("grouped", () => {
  it("puts groups in their order, losses first, numbers as numbers, and each name once", () => {
    const names = [
      "system/rank10/cpu_percent",
      "system/rank2/cpu_percent",
      "debug/x",
      "accuracy",
      "train/grad_norm",
      "train/loss",
      "train/aux_loss",
      "eval/loss",
      "eval/loss",
    ];
    expect(grouped(names)).toEqual([
      { name: "train", metrics: ["train/aux_loss", "train/loss", "train/grad_norm"] },
      { name: "eval", metrics: ["eval/loss"] },
      { name: "debug", metrics: ["debug/x"] },
      { name: "metrics", metrics: ["accuracy"] },
      { name: "system", metrics: ["system/rank2/cpu_percent", "system/rank10/cpu_percent"] },
    ]);
  });

  it("groups by the real prefix, and joins those that differ in a number only", () => {
    const layers = Array.from({ length: 100 }, (_, layer) => [`layer.${layer}/norm`, `layer.${layer}/grad`]).flat();
    const names = [
      "time/step",
      "val/loss",
      "actor/loss",
      "critic_2/loss",
      "v2/x",
      ...layers,
      "test/loss",
      "train/loss",
    ];
    const groups = grouped(names);
    expect(groups.map(({ name, metrics }) => [name, metrics.length])).toEqual([
      ["train", 1],
      ["val", 1],
      ["test", 1],
      ["actor", 1],
      ["critic_2", 1],
      ["layer", 200],
      ["v2", 1],
      ["time", 1],
    ]);
    expect(groups.flatMap(({ metrics }) => metrics).sort()).toEqual(names.sort());
    expect(groups.find(({ name }) => name === "layer")?.metrics.slice(0, 4)).toEqual([
      "layer.0/grad",
      "layer.0/norm",
      "layer.1/grad",
      "layer.1/norm",
    ]);
  });

  it("has no group without metrics", () => {
    expect(grouped([])).toEqual([]);
  });
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
  ["train/loss", "low"],
  ["eval/bits_per_byte", "low"],
  ["eval/accuracy", "high"],
  ["throughput/tokens_per_second", "high"],
  ["time/step_seconds", "low"],
  ["train/lr", null],
  ["train/closeness", null],
  ["system/node0/network_sent_bytes_per_second", null],
])("the better way of %s is %s", (metric, way) => {
  expect(betterWay(metric)).toBe(way);
});
