/**
 * A job's events as one story: what happened, oldest first, with each attempt's span put around what happened in it.
 *
 * The service tells only of the newest attempt; the earlier ones are read from the events. An attempt begins when devices
 * were found (`placed`, which comes before the attempt has a number) and ends with the step that took it out.
 */
import type { EventView, JobView } from "@/api/generated";

export interface Chapter {
  /** Null for what happened before the first attempt, and between two of them. */
  attempt: number | null;
  nodes: string[];
  from: string;
  /** Null while it goes on. */
  to: string | null;
  /** How it ended, as the event says it. */
  end: { reason: string; message: string } | null;
  worldSize: number | null;
  entries: Entry[];
}

/** One event, or several of the same kind that follow each other. */
export interface Entry {
  event: EventView;
  /** More of the kind, up to the last. */
  more: EventView[];
}

const ENDS = new Set(["requeued", "succeeded", "failed", "cancelled"]);
/** More than so many checkpoints that follow each other are one entry. */
const ALIKE_MAX = 3;

export function chapters(events: EventView[], job: Pick<JobView, "attempt">): Chapter[] {
  const story: Chapter[] = [];
  let open: Chapter | null = null;
  for (const event of events) {
    if (event.kind === "placed") {
      open = begin(event, lastAttempt(story) + 1, nodesOf(event));
      story.push(open);
    } else if (event.attempt !== null && open?.attempt !== event.attempt) {
      open = begin(event, event.attempt, []);
      story.push(open);
    } else if (open === null) {
      const before = story.at(-1);
      if (before?.attempt === null) open = before;
      else {
        open = begin(event, null, []);
        story.push(open);
      }
    }
    open.entries.push({ event, more: [] });
    if (open.attempt !== null && ENDS.has(event.kind)) {
      open.to = event.at;
      const { reason } = event.data ?? {};
      open.end = { reason: typeof reason === "string" ? reason : event.kind, message: event.message };
      open = null;
    }
  }
  for (const chapter of story) {
    chapter.entries = gathered(chapter.entries);
    if (job.attempt !== null && chapter.attempt === job.attempt.number) {
      chapter.nodes = job.attempt.nodes;
      chapter.worldSize = job.attempt.world_size;
    }
  }
  return story;
}

/** What happened before the newest attempt, in a sentence for each attempt; none where there was only one. */
export function earlierAttempts(events: EventView[], job: Pick<JobView, "attempt">): string[] {
  const newest = job.attempt?.number ?? 0;
  const resumed = new Map(
    events.filter(({ kind }) => kind === "resumed").map(({ attempt, data }) => [attempt, data?.step]),
  );
  return chapters(events, job).flatMap(({ attempt, end }) => {
    if (attempt === null || end === null || (attempt >= newest && end.reason === "succeeded")) return [];
    const last = attempt >= newest;
    if (last && events.at(-1)?.kind !== "requeued") return [];
    const step = resumed.get(attempt + 1);
    const next = last
      ? "it waits to be tried again"
      : `attempt ${attempt + 1} ${step === undefined ? "followed" : `went on from step ${step}`}`;
    return [`Attempt ${attempt} ended: ${end.message}; ${next}.`];
  });
}

function begin(event: EventView, attempt: number | null, nodes: string[]): Chapter {
  return { attempt, nodes, from: event.at, to: null, end: null, worldSize: null, entries: [] };
}

function lastAttempt(story: Chapter[]): number {
  return story.reduce((last, { attempt }) => Math.max(last, attempt ?? 0), 0);
}

function nodesOf({ data }: EventView): string[] {
  return Array.isArray(data?.nodes) ? data.nodes.map(String) : [];
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
