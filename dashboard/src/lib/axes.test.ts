import { describe, expect, it } from "vitest";
import server from "@/features/submit/server.json";
import { axesOf, perStepOf, unitsPerStep, WINDOWS } from "./axes";

const plan = { batch_size: 64 };

describe("perStepOf", () => {
  it.each([
    ["a script", { plan: null, spec: { script: { command: ["a.py"] } } }, {}],
    ["images", { plan, spec: { train: { task: "image_classification" } } }, { samples: 64 }],
    ["windows of the usual length", { plan, spec: { train: { task: "causal_lm" } } }, { samples: 64, tokens: 8_192 }],
    [
      "windows of a length of its own",
      { plan, spec: { train: { task: "hf_causal_lm", task_args: { context: 1_024 } } } },
      { samples: 64, tokens: 65_536 },
    ],
    [
      "other arguments only",
      { plan, spec: { train: { task: "causal_lm", task_args: { layers: 2 } } } },
      { samples: 64, tokens: 8_192 },
    ],
    [
      "a task of one's own",
      { plan, spec: { train: { task: "lm.py:Task", task_args: { context: 64 } } } },
      { samples: 64 },
    ],
    [
      "a length that is no number",
      { plan, spec: { train: { task: "causal_lm", task_args: { context: "64" } } } },
      { samples: 64 },
    ],
    ["a task named like a property of any object", { plan, spec: { train: { task: "toString" } } }, { samples: 64 }],
    ["a script that says how far it goes", { plan: null, progress: { step: 5, steps: 20 } }, { fraction: 0.05 }],
    ["a script that does not", { plan: null, progress: { step: 5, steps: null } }, { fraction: 0.2 }],
    [
      "a plan of steps",
      { plan: { ...plan, steps: 10 }, progress: { step: 5, steps: 10 } },
      { samples: 64, fraction: 0.1 },
    ],
    ["a spec without a task", { plan, spec: { train: [] } }, { samples: 64 }],
  ])("knows of %s what is certain", (_, job, expected) => {
    expect(perStepOf(job)).toEqual(expected);
  });

  it("knows the same windows as the service has tasks, and their usual lengths", () => {
    const lengths = Object.entries(server.tasks).flatMap(([task, { properties }]) =>
      "context" in properties ? [[task, properties.context.default]] : [],
    );
    expect(WINDOWS).toEqual(Object.fromEntries(lengths));
  });
});

describe("axesOf", () => {
  const image = { samples: 64 };
  const text = { samples: 32, tokens: 4_096 };

  it("offers samples where every job has a plan, and tokens where every job reads windows of them", () => {
    expect(axesOf([text])).toEqual(["step", "samples", "tokens", "relative", "wall"]);
    expect(axesOf([text, image])).toEqual(["step", "samples", "fraction", "relative", "wall"]);
    expect(axesOf([text, image, {}])).toEqual(["step", "fraction", "relative", "wall"]);
  });
});

it("has no steps along time", () => {
  const text = { samples: 32, tokens: 4_096 };
  expect((["step", "samples", "tokens", "relative", "wall"] as const).map((axis) => unitsPerStep(axis, text))).toEqual([
    1,
    32,
    4_096,
    null,
    null,
  ]);
  expect(unitsPerStep("tokens", { samples: 32 })).toBeNull();
});
