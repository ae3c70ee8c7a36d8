/** A service with one job that a page follows: a request gets what came since its cursor. */
import type { QueryClient } from "@tanstack/react-query";
import type { EventView, JobLiveView, JobView } from "@/api/generated";
import { liveKey } from "@/api/live";
import { view } from "./views";

interface Asked {
  query: { names?: readonly string[]; since?: string; summaries?: boolean };
}

/** Newest events of a first answer. */
const EVENTS_MAX = 500;

export class LiveService {
  /** Points of each series: one for each step from 0 on. */
  points = new Map<string, number>();
  events: EventView[] = [];
  /** Changes when the service loses what it answered before. */
  generation = 0;

  constructor(public job: JobView) {}

  answer = ({ query: { names = [], since, summaries = true } }: Asked): Promise<{ data: JobLiveView }> => {
    const [generation, told, read] = since === undefined ? [-1, 0, {}] : (JSON.parse(since) as Cursor);
    const complete = generation !== this.generation;
    const counts: Record<string, number> = complete ? {} : read;
    const series = names.flatMap((name) => {
      const from = counts[name] ?? 0;
      const count = this.points.get(name) ?? 0;
      return count > from ? [view(name, count - from, count - from, from)] : [];
    });
    const now = Object.fromEntries(names.map((name) => [name, this.points.get(name) ?? 0]));
    const events = complete ? this.events.slice(-EVENTS_MAX) : this.events.slice(told);
    const older = complete && this.events.length > EVENTS_MAX ? String(events[0]?.id) : null;
    const cursor: Cursor = [this.generation, this.events.length, { ...counts, ...now }];
    return Promise.resolve({
      data: {
        job: this.job,
        summaries: summaries ? [] : null,
        series: series as JobLiveView["series"],
        events,
        older_events: older,
        cursor: JSON.stringify(cursor),
        complete,
      },
    });
  };
}

type Cursor = [generation: number, events: number, counts: Record<string, number>];

/** As if the page of a job had just got its first answer with these events. */
export async function knowEvents(client: QueryClient, job: JobView, events: readonly EventView[]): Promise<void> {
  const service = new LiveService(job);
  service.events = [...events];
  const { data } = await service.answer({ query: {} });
  client.setQueryData(liveKey(job.id), {
    cursor: data.cursor,
    curves: new Map(),
    summaries: new Map(),
    summariesAt: 0,
    told: { events: data.events, older: data.older_events },
    endedAt: null,
    isFinal: false,
  });
}
