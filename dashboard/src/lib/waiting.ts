/** Why a job waits, in the service's words, with the jobs that it names made into names that people know. */

import { moment } from "./format";

/** Words, or a job that they name. */
export type WaitPart = string | { job: string; name: string };

const JOB_ID = /(?<=\bjob )[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g;

/** A time in the service's words: the command shows it as it is, a page in the reader's zone like its other times. */
const TIME = /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC\b/g;

/** The parts of `reason`; a job of unknown name keeps the end of its id, which also finds it. */
export function waitParts(words: string, nameOf: (id: string) => string | undefined): WaitPart[] {
  const reason = words.replace(TIME, (_, day, time) => moment(`${day}T${time}Z`).replace(":00 UTC", " UTC"));
  const parts: WaitPart[] = [];
  let from = 0;
  for (const found of reason.matchAll(JOB_ID)) {
    const id = found[0];
    parts.push(reason.slice(from, found.index), { job: id, name: nameOf(id) ?? `…${id.slice(-6)}` });
    from = found.index + id.length;
  }
  parts.push(reason.slice(from));
  return parts.filter((part) => part !== "");
}
