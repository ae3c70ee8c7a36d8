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
      { name: "system", metrics: ["system/rank2/cpu_percent", "system/rank10/cpu_percent"] },
      { name: "metrics", metrics: ["accuracy", "debug/x"] },
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
