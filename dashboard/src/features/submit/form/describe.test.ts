import { expect, it } from "vitest";
import { describe as describeField, type Schemas } from "./describe";

const SCHEMAS: Schemas = {
  JobSpec: {
    properties: {
      name: { description: "Its name." },
      train: { anyOf: [{ $ref: "#/components/schemas/Train" }, {}], description: "Needed for train." },
      code: { anyOf: [{ $ref: "#/components/schemas/Upload" }, { $ref: "#/components/schemas/Git" }] },
    },
  },
  Train: {
    properties: {
      batch: { $ref: "#/components/schemas/Batch" },
      task_args: { description: "Arguments." },
    },
  },
  Batch: { description: "The promise.", properties: { size: { description: "Samples." } } },
  Upload: { properties: { upload: { description: "A digest." } } },
  Git: { properties: { git: { description: "An address." } } },
};

it.each([
  [["name"], "Its name."],
  [["train"], "Needed for train."],
  [["train", "batch"], "The promise."],
  [["train", "batch", "size"], "Samples."],
  [["code", "git"], "An address."],
  [["train", "task_args"], "Arguments."],
  [["train", "task_args", "layers"], "Transformer blocks."],
  [["train", "task_args", "unknown"], ""],
  [["nothing", "here"], ""],
])("%j means %j", (path, words) => {
  expect(describeField(SCHEMAS, path, { train: { task: "causal_lm" } })).toBe(words);
});
