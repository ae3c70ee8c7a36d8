import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import type { EventView } from "@/api/generated";
import { marksOf } from "./marks";

const AT = Date.parse("2026-11-22T12:00:00Z");

function story(
  ...events: [kind: string, attempt: number | null, message: string, data?: EventView["data"]][]
): EventView[] {
  return events.map(([kind, attempt, message, data], index) => ({
    id: index + 1,
    at: new Date(AT + index * 1_000).toISOString(),
    kind,
    attempt,
    actor: "lockstep",
    message,
    data,
  }));
}

it("tells of what happened, where and why, and of nothing else", () => {
  const marks = marksOf(
    story(
      ["submitted", null, "submitted by ada"],
      ["placed", null, "placed on n1", { nodes: ["n1"] }],
      ["running", 1, "2 ranks are running"],
      ["plan", 1, "the batch plan is final", { micro_batch_size: 16 }],
      ["checkpoint", 1, "checkpoint of step 40", { step: 40 }],
      ["warning", 1, "step 52 ran out of memory: continuing with micro-batches of 8 instead of 16; the batch stays 64"],
      ["plan", 1, "the batch plan is final", { micro_batch_size: 8 }],
      ["requeued", 1, "devices were needed by job b", { reason: "preempted", charged: false }],
      ["running", 2, "1 rank is running"],
      ["resumed", 2, "Training resumes from the checkpoint of step 40.", { step: 40 }],
      ["warning", 2, "rank 0 is slower than the others"],
      ["requeued", 2, "rank 0 was killed by SIGKILL", { reason: "killed", charged: true }],
      ["plan", 2, "out of memory: the next attempt runs micro-batches of 4 instead of 8; the batch stays 64"],
      ["running", 3, "1 rank is running"],
      ["succeeded", 3, "all ranks ended well", { reason: "succeeded" }],
    ),
  );
  expect(marks.map(({ kind, attempt, step, at }) => [kind, attempt, step, at - AT / 1_000])).toEqual([
    ["checkpoint", 1, 40, 4],
    ["memory", 1, 52, 5],
    ["preempted", 1, null, 7],
    ["restart", 2, 40, 8],
    ["memory", 2, null, 12],
    ["restart", 3, null, 13],
  ]);
  expect(marks.map(({ words }) => words)).toEqual([
    "Checkpoint of step 40",
    "Step 52 ran out of memory: continuing with micro-batches of 8 instead of 16; the batch stays 64",
    "Preempted: devices were needed by job b",
    "Attempt 2 begins at the checkpoint of step 40. Before it: devices were needed by job b",
    "Out of memory: the next attempt runs micro-batches of 4 instead of 8; the batch stays 64",
    "Attempt 3 begins. Before it: rank 0 was killed by SIGKILL",
  ]);
});

it("takes the first attempt that ran for no restart, also where one before it never ran", () => {
  expect(
    marksOf(
      story(["requeued", 1, "the node never answered", { reason: "unanswered" }], ["running", 2, "1 rank is running"]),
    ),
  ).toEqual([]);
  expect(marksOf([])).toEqual([]);
});

it("knows what the service says of a step, or of an attempt, that ran out of memory", () => {
  const said = (file: string, after: string) => {
    const text = readFileSync(join(fileURLToPath(import.meta.url), "../../../..", file), "utf8");
    const from = text.indexOf(after);
    // The pieces of the message, with each value in it written as a number.
    return [...text.slice(from, from + 400).matchAll(/f?"([^"]*)"/g)]
      .slice(0, 3)
      .map(([, piece]) => piece)
      .join("")
      .replace(/\{[^}]*\}/g, "8");
  };
  const step = said("engine/loop/oom_retry.py", "telemetry.warn(");
  const attempt = said("storage/attempts/judging.py", "message = (");
  const marks = marksOf(story(["warning", 1, step], ["plan", 1, attempt]));
  expect(marks.map(({ kind, step: at }) => [kind, at])).toEqual([
    ["memory", 8],
    ["memory", null],
  ]);
});
