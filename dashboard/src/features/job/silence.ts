/** Which nodes of a script are silent: they write nothing, and their devices are idle. */
import type { EventView, JobView } from "@/api/generated";

export interface Silence {
  event: EventView;
  /** Python stacks of the ranks; empty without any. */
  stacks: string;
}

/** The newest silence of each node that has not ended. Events are oldest first, as the service lists them. */
export function silencesOf(job: JobView, events: readonly EventView[]): Silence[] {
  const newest = new Map<unknown, EventView>();
  for (const event of events) {
    const isOfNow = job.attempt === null || event.attempt === job.attempt.number;
    if (isOfNow && (event.kind === "silent" || event.kind === "output_again")) newest.set(event.data?.node, event);
  }
  return [...newest.values()]
    .filter(({ kind }) => kind === "silent")
    .map((event) => ({ event, stacks: typeof event.data?.stacks === "string" ? event.data.stacks : "" }));
}
