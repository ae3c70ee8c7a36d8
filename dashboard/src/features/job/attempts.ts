/**
 * What the attempts at a job were, for people: how each made the batch, when it ran, and how it ended. Pure; the tests are
 * beside it.
 */
import type { AttemptView, Outcome } from "@/api/generated";
import { ReasonPassing } from "@/api/generated/choices.gen";
import { number } from "@/lib/format";

/** A plan's sentence, taken apart so that several can be read below each other. */
export interface PlanParts {
  /** Samples in a step; null where the sentence does not begin with it. */
  batch: number | null;
  /** "2 ranks", "8 samples", "4 accumulation steps"; empty where the batch is no plain product. */
  factors: string[];
  /** All of the sentence behind the batch. */
  rest: string;
}

export function planParts(sentence: string): PlanParts {
  const [, batch, rest] = /^(\d+) (.+)$/s.exec(sentence) ?? [];
  if (batch === undefined || rest === undefined) return { batch: null, factors: [], rest: sentence };
  return { batch: Number(batch), factors: rest.startsWith("= ") ? rest.slice(2).split(" × ") : [], rest };
}

export interface Kept {
  isKept: boolean;
  words: string;
}

/** Whether the batch was the same in all attempts; null where there is nothing to compare. */
export function promiseOver(attempts: readonly AttemptView[]): Kept | null {
  const batches = new Map<number, number[]>();
  for (const { number: attempt, plan_sentence: sentence } of attempts) {
    const batch = sentence == null ? null : planParts(sentence).batch;
    if (batch !== null) batches.set(batch, [...(batches.get(batch) ?? []), attempt]);
  }
  const [first, ...others] = batches;
  if (first === undefined) return null;
  const [batch, made] = first;
  if (others.length > 0) {
    const each = [...batches].map(([size, of]) => `${number(size)} in ${numbered(of)}`);
    return { isKept: false, words: `The batch was not the same: ${each.join("; ")}.` };
  }
  if (made.length < 2) return null;
  const times = made.length === 2 ? "both" : `all ${made.length}`;
  return { isKept: true, words: `The batch was ${number(batch)} samples a step in ${times} attempts.` };
}

/** Which factors are not those of the attempt before. */
export function changedFactors(factors: readonly string[], before: readonly string[]): boolean[] {
  return factors.map((factor, place) => before.length === factors.length && factor !== before[place]);
}

export type Tone = "good" | "busy" | "wait" | "bad" | "idle";

export interface Ending {
  icon: string;
  tone: Tone;
  /** "running", "out of memory". */
  word: string;
}

/** Ends that are no failure: the job goes on by itself, or when it is asked to. */
const PASSING: ReadonlySet<Outcome["reason"]> = new Set(ReasonPassing);

export function endingOf({ state, outcome }: Pick<AttemptView, "state" | "outcome">): Ending {
  if (state === "starting") return { icon: "◔", tone: "busy", word: "starting" };
  if (state === "running") return { icon: "▶", tone: "busy", word: "running" };
  if (outcome === null) return { icon: "⊘", tone: "idle", word: "ended" };
  const word = outcome.reason.replaceAll("_", " ");
  if (outcome.reason === "succeeded") return { icon: "✓", tone: "good", word };
  if (outcome.reason === "cancelled") return { icon: "⊘", tone: "idle", word };
  return PASSING.has(outcome.reason) ? { icon: "↻", tone: "wait", word } : { icon: "✕", tone: "bad", word };
}

/** "rank 1 on gpu-a, exit code 3, after step 40": what is known of who failed, and where. */
export function whereItFailed({ rank, node, exit_code: code, signal, last_step: step }: Outcome): string {
  const who = [rank == null ? "" : `rank ${rank}`, node == null ? "" : `on ${node}`].filter((part) => part !== "");
  const facts = [
    who.join(" "),
    code == null ? "" : `exit code ${code}`,
    signal ?? "",
    step == null ? "" : `after step ${number(step)}`,
  ];
  return facts.filter((fact) => fact !== "").join(", ");
}

/** The first line of an exception says what it is; its others say where it came from. */
export function firstLine(text: string | null | undefined): string {
  return (
    (text ?? "")
      .split("\n")
      .find((line) => line.trim() !== "")
      ?.trim() ?? ""
  );
}

export interface Span {
  /** Fractions of the time that is shown. */
  left: number;
  width: number;
}

/** Where each attempt lies between the begin of the first and the end of the last; what goes on lasts until `now`. */
export function spans(attempts: readonly AttemptView[], now: number): Span[] {
  const times = attempts.map(({ created_at: from, ended_at: to }) => {
    const begin = Date.parse(from);
    return { begin, end: Math.max(begin, to === null ? now : Date.parse(to)) };
  });
  const begin = Math.min(...times.map((time) => time.begin));
  const whole = Math.max(...times.map((time) => time.end)) - begin;
  return times.map((time) =>
    whole === 0
      ? { left: 0, width: 1 }
      : { left: (time.begin - begin) / whole, width: (time.end - time.begin) / whole },
  );
}

function numbered(attempts: readonly number[]): string {
  return `attempt${attempts.length === 1 ? "" : "s"} ${[...attempts].sort((a, b) => a - b).join(", ")}`;
}
