/**
 * When a queued job is likely to start, or what it starts after, in words. Pure; the tests are beside it.
 *
 * Not here: the whole sentence about a start that is not known, which the service says (`getWhy`).
 */
import type { QueuePlace, WaitCode } from "@/api/generated";

export interface StartWords {
  /** "about 14:35", "once a node is ready". */
  when: string;
  /** "in 25 min"; empty where there is nothing to add. */
  more: string;
}

/** "about 14:35, in 25 min". */
export function startSentence({ when, more }: StartWords): string {
  return more === "" ? when : `${when}, ${more}`;
}

/** What jobs start after whose start is not known; in the sense of `domain.scheduling.reasons.unknown_start`. */
const AFTER: Record<WaitCode, string> = {
  holds: "after jobs without a time limit",
  behind: "after jobs without a time limit",
  fair_share: "after jobs without a time limit",
  fragmented: "after jobs without a time limit",
  backoff: "after jobs without a time limit",
  limit: "once below its device limit",
  budget: "once within the budget",
  needs: "once a node fits",
  never_fits: "once a node fits",
  no_node: "once a node is ready",
  sealing: "once its output is stored",
  restored: "once the restore is over",
  unreadable: "after an upgrade",
};

/** @param queue - Null of a job that the scheduler has not processed yet. */
export function startWords(queue: QueuePlace | null, now: number): StartWords {
  const start = queue?.estimated_start;
  if (start == null) return { when: queue?.code == null ? "not processed yet" : AFTER[queue.code], more: "" };
  const at = Date.parse(start);
  if (at <= now) return { when: "any moment now", more: "" };
  const when = `about ${clock(new Date(at), new Date(now))}`;
  return { when, more: `in ${roughly((at - now) / 1_000)}` };
}

/** 14:35; tomorrow 09:15; 2026-11-24 09:15: in the reader's time zone. */
function clock(at: Date, now: Date): string {
  const two = (part: number) => String(part).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (at.toDateString() === now.toDateString()) return time;
  const tomorrow = new Date(now.getFullYear(), now.getMonth(), now.getDate() + 1);
  if (at.toDateString() === tomorrow.toDateString()) return `tomorrow ${time}`;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** No seconds: no start is known that well. */
function roughly(seconds: number): string {
  const minutes = Math.round(seconds / 60);
  if (minutes < 1) return "less than a minute";
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? both(hours, "h", minutes % 60, "min") : both(Math.floor(hours / 24), "d", hours % 24, "h");
}

function both(large: number, unit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smallUnit}`;
}
