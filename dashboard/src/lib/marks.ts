/**
 * What happened to a job beside its points: it began again, gave way, ran out of memory, saved itself.
 *
 * Read from the job's events. Where each lies on an axis, and which share a place, is `mark-places`.
 */
import type { EventView } from "@/api/generated";

/** In the order in which they are told where several share a place. */
export const MARK_KINDS = ["preempted", "memory", "restart", "checkpoint"] as const;
export type MarkKind = (typeof MARK_KINDS)[number];

export interface Mark {
  kind: MarkKind;
  attempt: number | null;
  /** Seconds since the epoch. */
  at: number;
  /** Null where the event names none. */
  step: number | null;
  words: string;
}

export const MARK_NAMES: Readonly<Record<MarkKind, string>> = {
  preempted: "preempted",
  memory: "out of memory",
  restart: "restart",
  checkpoint: "checkpoint",
};

/** In the message of the warning of a step that is repeated, and of the plan of an attempt after one that failed. */
const SMALLER = /micro-batches of \d+ instead of \d+/;
const STEP = /^step (\d+) /;

type Told = Pick<EventView, "kind" | "at" | "attempt" | "message" | "data">;

/** The events' marks, in their order. */
export function marksOf(events: readonly Told[]): Mark[] {
  const begun = events.flatMap(({ kind, attempt }) => (kind === "running" && attempt !== null ? [attempt] : []));
  const first = Math.min(...begun);
  return events.flatMap((event): Mark[] => {
    const { kind, attempt, message } = event;
    const mark = { attempt, at: Date.parse(event.at) / 1_000 };
    if (kind === "checkpoint") return [{ ...mark, kind, step: stepOf(event), words: sentence(message) }];
    if (kind === "requeued" && event.data?.reason === "preempted")
      return [{ ...mark, kind: "preempted", step: null, words: `Preempted: ${message}` }];
    if ((kind === "warning" || kind === "plan") && SMALLER.test(message)) {
      const step = STEP.exec(message)?.[1];
      return [{ ...mark, kind: "memory", step: step === undefined ? null : Number(step), words: sentence(message) }];
    }
    if (kind === "running" && attempt !== null && attempt > first)
      return [{ ...mark, kind: "restart", ...beginning(events, attempt) }];
    return [];
  });
}

/** From where an attempt went on, and why it had to. */
function beginning(events: readonly Told[], attempt: number): Pick<Mark, "step" | "words"> {
  const resumed = events.find((event) => event.kind === "resumed" && event.attempt === attempt);
  const step = resumed === undefined ? null : stepOf(resumed);
  const ended = events.findLast(
    (event) => event.kind === "requeued" && event.attempt !== null && event.attempt < attempt,
  );
  const words = [
    `Attempt ${attempt} begins`,
    ...(step === null ? [] : [` at the checkpoint of step ${step.toLocaleString("en-US")}`]),
    ...(ended === undefined ? [] : [`. Before it: ${ended.message}`]),
  ];
  return { step, words: words.join("") };
}

function stepOf({ data }: Told): number | null {
  return typeof data?.step === "number" ? data.step : null;
}

function sentence(message: string): string {
  return message.slice(0, 1).toUpperCase() + message.slice(1);
}
