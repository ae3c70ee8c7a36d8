import { describe, expect, it } from "vitest";
import type { AttemptView, EventView } from "@/api/generated";
import { randomFrom } from "@/testing/random";
import { chapters, earlierAttempts, heading, newestFirst, resumedSteps } from "./timeline";

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
  event("resumed", 2, "Training resumes from the checkpoint of step 100.", { step: 100 }),
];

describe("chapters", () => {
  it("tell each attempt from its placing to its end", () => {
    const story = chapters(RESTARTED);
    expect(story.map(({ attempt, entries }) => [attempt, entries.map(({ event: { kind } }) => kind)])).toEqual([
      [null, ["submitted"]],
      [1, ["placed", "running", "checkpoint", "requeued"]],
      [2, ["placed", "running", "resumed"]],
    ]);
    expect(story[1]?.end).toEqual({ reason: "lost", message: "node borea fell silent" });
    expect(story[2]?.end).toBeNull();
  });

  it("call what comes after the last attempt neither an attempt nor a wait in the queue", () => {
    const ended = [...RESTARTED, event("succeeded", 2), event("expired", null), event("expired", null)];
    const { told } = newestFirst(chapters(ended), 100);
    expect(told.map(heading)).toEqual(["After its end", "Attempt 2", "Attempt 1", "In the queue"]);
  });

  it("lose no event", () => {
    const told = chapters(RESTARTED).flatMap(({ entries }) => entries.flatMap((entry) => [entry.event, ...entry.more]));
    expect(told).toEqual(RESTARTED);
  });

  it("number an attempt right where the story begins late", () => {
    const late = [event("placed", null), event("running", 7), event("requeued", 7), event("placed", null)];
    expect(chapters(late).map(({ attempt, entries }) => [attempt, entries.length])).toEqual([
      [7, 3],
      [8, 1],
    ]);
  });

  it("keep what happens between two attempts apart", () => {
    const story = chapters([
      event("submitted", null),
      event("placed", null),
      event("requeued", 1),
      event("priority", null),
      event("placed", null),
    ]);
    expect(story.map(({ attempt, entries }) => [attempt, entries.length])).toEqual([
      [null, 1],
      [1, 2],
      [null, 1],
      [2, 1],
    ]);
  });

  it("put a cancel that came before any attempt where it happened", () => {
    const story = chapters([event("submitted", null), event("cancelled", null)]);
    expect(story).toHaveLength(1);
    expect(story[0]).toMatchObject({ attempt: null, end: null });
  });

  it("gather checkpoints that follow each other", () => {
    const many = Array.from({ length: 6 }, () => event("checkpoint", 1));
    const [chapter] = chapters([event("running", 1), ...many, event("warning", 1), event("checkpoint", 1)]);
    expect(chapter?.entries.map(({ event: { kind }, more }) => [kind, more.length])).toEqual([
      ["running", 0],
      ["checkpoint", 5],
      ["warning", 0],
      ["checkpoint", 0],
    ]);
  });
});

describe("newestFirst", () => {
  it("is the end of the story turned round, whatever its length, and counts the rest", () => {
    const random = randomFrom(7);
    for (let round = 0; round < 60; round += 1) {
      const kinds = ["placed", "running", "checkpoint", "checkpoint", "checkpoint", "requeued", "warning"];
      let attempt = 0;
      const events = Array.from({ length: Math.floor(random() * 40) }, () => {
        const kind = kinds[Math.floor(random() * kinds.length)] as string;
        if (kind === "placed") attempt += 1;
        return event(kind, kind === "placed" || attempt === 0 ? null : attempt);
      });
      const story = chapters(events);
      const rows = story.flatMap(({ attempt: of, entries }) => entries.map((entry) => ({ of, entry })));
      const count = Math.floor(random() * (rows.length + 3));
      const { told, older } = newestFirst(story, count);
      const shown = told.flatMap(({ attempt: of, entries }) => entries.map((entry) => ({ of, entry })));
      expect(shown).toEqual(rows.slice(Math.max(0, rows.length - count)).reverse());
      expect(older).toBe(events.length - shown.reduce((sum, { entry }) => sum + 1 + entry.more.length, 0));
      expect(told.every(({ entries }) => entries.length > 0)).toBe(true);
    }
  });
});

it("knows from which step an attempt went on", () => {
  expect([...resumedSteps(RESTARTED)]).toEqual([[2, 100]]);
  expect(resumedSteps([event("resumed", 3, "resumed", { step: "?" })]).size).toBe(0);
});

describe("earlierAttempts", () => {
  it("says how earlier attempts ended, and where the next went on", () => {
    expect(earlierAttempts(RESTARTED, newest(2))).toEqual([
      "Attempt 1 ended: node borea fell silent; attempt 2 went on from step 100.",
    ]);
  });

  it("claims no step where the next attempt told of none", () => {
    expect(earlierAttempts(RESTARTED.slice(0, -1), newest(2))[0]).toContain("attempt 2 followed");
    const kept = event("files_restored", 2, "Restored 14 files.", { files: 14 });
    expect(earlierAttempts([...RESTARTED, kept], newest(2))[0]).toContain("from step 100 with 14 files of before.");
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
