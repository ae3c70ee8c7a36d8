/**
 * Search for the first error in a log, by keywords; the answer names the keyword.
 *
 * A Python traceback is the most reliable sign, then "error" on stderr, then "error" anywhere. The
 * service searches; each search is bounded, and the answer reports the unsearched part.
 */
import { getJobLogs, type LogLine } from "@/api/generated";
import type { LogFilter } from "@/lib/log-view";

const SIGNS: { search: string; stream?: "stderr"; words: string }[] = [
  { search: "Traceback (most recent call last)", words: "a traceback" },
  { search: "error", stream: "stderr", words: "“error” on stderr" },
  { search: "error", words: "“error”" },
];

/** Pages of one search: more than a million lines without a match. */
const PAGES_MAX = 40;

export interface FirstError {
  line: LogLine | null;
  /** The matched keyword, or a note that there was no match. */
  words: string;
}

/** Search the lines of an attempt, a rank and a stream; the text filter is ignored. */
export async function findFirstError(jobId: string, filter: LogFilter, signal?: AbortSignal): Promise<FirstError> {
  let whole = true;
  for (const sign of SIGNS) {
    if (sign.stream !== undefined && filter.stream !== undefined && filter.stream !== sign.stream) continue;
    const query = { ...filter, search: sign.search, stream: sign.stream ?? filter.stream };
    const found = await firstLine(jobId, query, signal);
    if (found === "not all was looked at") whole = false;
    else if (found !== null) return { line: found, words: `The first line with ${sign.words}.` };
  }
  const words = whole
    ? "No line has a traceback or “error” in it."
    : "No traceback or “error” in the part that was searched.";
  return { line: null, words };
}

async function firstLine(
  jobId: string,
  query: LogFilter,
  signal: AbortSignal | undefined,
): Promise<LogLine | null | "not all was looked at"> {
  let cursor: string | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { data } = await getJobLogs({
      path: { reference: jobId },
      query: { ...query, limit: 1, ...(cursor === undefined ? {} : { cursor }) },
      signal,
      throwOnError: true,
    });
    const [line] = data.lines;
    if (line !== undefined) return line;
    if (data.complete || data.next_cursor === cursor) return null;
    cursor = data.next_cursor;
  }
  return "not all was looked at";
}
