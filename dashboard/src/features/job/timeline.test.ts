import { describe, expect, it } from "vitest";
import type { AttemptView, EventView } from "@/api/generated";
import { chapters, earlierAttempts } from "./timeline";

let ids = 0;
function event(kind: string, attempt: number | null, message = kind, data: Record<string, unknown> = {}): EventView {
  ids += 1;
  return { id: ids, at: new Date(ids * 1_000).toISOString(), kind, attempt, actor: "lockstep", message, data };
}

function newest(number: number): { attempt: AttemptView } {
  return {
    attempt: {
      number,
      state: "running",
      nodes: ["atlas"],
      world_size: 2,
      outcome: null,
      created_at: "",
      running_at: null,
      ended_at: null,
    },
  };
}

const RESTARTED = [
  event("submitted", null),
  event("placed", null, "placed on borea", { nodes: ["borea"] }),
  event("running", 1),
  event("checkpoint", 1),
  event("requeued", 1, "node borea fell silent", { reason: "lost" }),
  event("placed", null, "placed on atlas", { nodes: ["atlas"] }),
  event("running", 2),
  event("resumed", 2, "Training goes on from the checkpoint of step 100.", { step: 100 }),
];

describe("chapters", () => {
  it("tell each attempt from its placing to its end", () => {
    const story = chapters(RESTARTED, newest(2));
    expect(story.map(({ attempt, nodes }) => [attempt, nodes])).toEqual([
      [null, []],
      [1, ["borea"]],
      [2, ["atlas"]],
    ]);
    expect(story[1]).toMatchObject({ end: { reason: "lost", message: "node borea fell silent" }, worldSize: null });
    expect(story[1]?.from).toBe(RESTARTED[1]?.at);
    expect(story[1]?.to).toBe(RESTARTED[4]?.at);
    expect(story[2]).toMatchObject({ to: null, end: null, worldSize: 2 });
  });

  it("lose no event", () => {
    const told = chapters(RESTARTED, newest(2)).flatMap(({ entries }) =>
      entries.flatMap((entry) => [entry.event, ...entry.more]),
    );
    expect(told).toEqual(RESTARTED);
  });

  it("keep what happens between two attempts apart", () => {
    const story = chapters(
      [
        event("submitted", null),
        event("placed", null),
        event("requeued", 1),
        event("priority", null),
        event("placed", null),
      ],
      { attempt: null },
    );
    expect(story.map(({ attempt, entries }) => [attempt, entries.length])).toEqual([
      [null, 1],
      [1, 2],
      [null, 1],
      [2, 1],
    ]);
  });

  it("put a cancel that came before any attempt where it happened", () => {
    const story = chapters([event("submitted", null), event("cancelled", null)], { attempt: null });
    expect(story).toHaveLength(1);
    expect(story[0]).toMatchObject({ attempt: null, end: null });
  });

  it("gather checkpoints that follow each other", () => {
    const many = Array.from({ length: 6 }, () => event("checkpoint", 1));
    const [chapter] = chapters([event("running", 1), ...many, event("warning", 1), event("checkpoint", 1)], {
      attempt: null,
    });
    expect(chapter?.entries.map(({ event: { kind }, more }) => [kind, more.length])).toEqual([
      ["running", 0],
      ["checkpoint", 5],
      ["warning", 0],
      ["checkpoint", 0],
    ]);
  });
});

describe("earlierAttempts", () => {
  it("says how earlier attempts ended, and where the next went on", () => {
    expect(earlierAttempts(RESTARTED, newest(2))).toEqual([
      "Attempt 1 ended: node borea fell silent; attempt 2 went on from step 100.",
    ]);
  });

  it("claims no step where the next attempt told of none", () => {
    expect(earlierAttempts(RESTARTED.slice(0, -1), newest(2))[0]).toContain("attempt 2 followed");
  });

  it("says nothing of a single attempt, even once it has ended", () => {
    expect(earlierAttempts(RESTARTED.slice(0, 4), newest(1))).toEqual([]);
    const failed = [...RESTARTED.slice(0, 4), event("failed", 1, "exit code 1", { reason: "user_error" })];
    expect(earlierAttempts(failed, newest(1))).toEqual([]);
  });

  it("says that the job waits where the newest attempt was given back", () => {
    expect(earlierAttempts(RESTARTED.slice(0, 5), newest(1))).toEqual([
      "Attempt 1 ended: node borea fell silent; it waits to be tried again.",
    ]);
  });
});
