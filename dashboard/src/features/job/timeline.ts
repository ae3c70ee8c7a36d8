/**
 * A job's events as one story, with each attempt's events in a chapter of their own.
 *
 * An attempt begins when devices were found (`placed`, which comes before the attempt has a number) and ends with the step
 * that took it out. Not here: what the service says of attempts themselves (`attempts.ts`).
 */
import type { EventView, JobView } from "@/api/generated";
import { counted } from "@/lib/resources";

export interface Chapter {
  /** Null for what happened before the first attempt, between two of them, and after the last. */
  attempt: number | null;
  /** How it ended, as the event says it. */
  end: { reason: string; message: string } | null;
  /** Oldest first. */
  entries: Entry[];
}

/** One event, or several of the same kind that follow each other. */
export interface Entry {
  event: EventView;
  /** More of the kind, up to the last. */
  more: EventView[];
}

const ENDS = new Set(["requeued", "paused", "succeeded", "failed", "cancelled"]);
/** More than so many checkpoints that follow each other are one entry. */
const ALIKE_MAX = 3;

/** Of events in their order, oldest first. They may begin anywhere in the story. */
export function chapters(events: readonly EventView[]): Chapter[] {
  const story: Chapter[] = [];
  let open: Chapter | null = null;
  for (const event of events) {
    if (event.kind === "placed") {
      open = begin(lastAttempt(story) + 1);
      story.push(open);
    } else if (event.attempt !== null && open?.attempt !== event.attempt) {
      if (open !== null && isNumberedLate(open, event.attempt)) open.attempt = event.attempt;
      else {
        open = begin(event.attempt);
        story.push(open);
      }
    } else if (open === null) {
      const before = story.at(-1);
      if (before?.attempt === null) open = before;
      else {
        open = begin(null);
        story.push(open);
      }
    }
    open.entries.push({ event, more: [] });
    if (open.attempt !== null && ENDS.has(event.kind)) {
      const { reason } = event.data ?? {};
      open.end = { reason: typeof reason === "string" ? reason : event.kind, message: event.message };
      open = null;
    }
  }
  for (const chapter of story) chapter.entries = gathered(chapter.entries);
  return story;
}

export interface Told {
  attempt: number | null;
  /** Newest first. */
  entries: Entry[];
}

/** The newest `count` entries of the story, newest first, and how many events are older than these. */
export function newestFirst(story: readonly Chapter[], count: number): { told: Told[]; older: number } {
  const told: Told[] = [];
  let left = count;
  let older = 0;
  for (const { attempt, entries } of [...story].reverse()) {
    const begin = Math.max(0, entries.length - left);
    left -= entries.length - begin;
    if (begin < entries.length) told.push({ attempt, entries: entries.slice(begin).reverse() });
    for (const { more } of entries.slice(0, begin)) older += 1 + more.length;
  }
  return { told, older };
}

/** What stands over a part of the story. */
export function heading({ attempt, entries }: Told): string {
  if (attempt !== null) return `Attempt ${attempt}`;
  return entries.every(({ event }) => event.kind === "expired") ? "After its end" : "In the queue";
}

/** From which step each attempt went on that did, by its number. */
export function resumedSteps(events: readonly EventView[]): ReadonlyMap<number, number> {
  return numbersOf(events, "resumed", "step");
}

/** How many kept files each attempt began with, by its number. */
export function restoredFiles(events: readonly EventView[]): ReadonlyMap<number, number> {
  return numbersOf(events, "files_restored", "files");
}

function numbersOf(events: readonly EventView[], wanted: string, name: string): ReadonlyMap<number, number> {
  const found = new Map<number, number>();
  for (const { kind, attempt, data } of events) {
    const value = data?.[name];
    if (kind === wanted && attempt !== null && typeof value === "number") found.set(attempt, value);
  }
  return found;
}

/** What happened before the newest attempt, in a sentence for each attempt; none where there was only one. */
export function earlierAttempts(events: readonly EventView[], job: Pick<JobView, "attempt">): string[] {
  const newest = job.attempt?.number ?? 0;
  const [resumed, restored] = [resumedSteps(events), restoredFiles(events)];
  return chapters(events).flatMap(({ attempt, end }) => {
    if (attempt === null || end === null || (attempt >= newest && end.reason === "succeeded")) return [];
    const last = attempt >= newest;
    if (last && events.at(-1)?.kind !== "requeued") return [];
    const [step, files] = [resumed.get(attempt + 1), restored.get(attempt + 1)];
    const went = step === undefined ? "followed" : `went on from step ${step}`;
    const next = last
      ? "it waits to be tried again"
      : `attempt ${attempt + 1} ${went}${files === undefined ? "" : ` with ${counted(files, "file")} of before`}`;
    return [`Attempt ${attempt} ended: ${end.message}; ${next}.`];
  });
}

function begin(attempt: number | null): Chapter {
  return { attempt, end: null, entries: [] };
}

/** Whether this is the attempt that was placed there: where the story begins late, how many there were before is not known. */
function isNumberedLate({ attempt, entries }: Chapter, number: number): boolean {
  return attempt !== null && attempt < number && entries.every(({ event }) => event.attempt === null);
}

function lastAttempt(story: Chapter[]): number {
  return story.reduce((last, { attempt }) => Math.max(last, attempt ?? 0), 0);
}

function gathered(entries: Entry[]): Entry[] {
  const result: Entry[] = [];
  let start = 0;
  while (start < entries.length) {
    let end = start + 1;
    const kind = entries[start]?.event.kind;
    if (kind === "checkpoint") while (entries[end]?.event.kind === kind) end += 1;
    const run = entries.slice(start, end);
    const [first, ...rest] = run;
    if (first !== undefined && run.length > ALIKE_MAX) {
      result.push({ event: first.event, more: rest.map(({ event }) => event) });
    } else result.push(...run);
    start = end;
  }
  return result;
}
