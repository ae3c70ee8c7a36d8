/** What the line at the head of a job's page says of its progress, in the order of what one wants to know first. */
import type { JobView } from "@/api/generated";
import type { Time } from "@/components/Clock";
import { hasEnded } from "@/lib/ended";
import { duration, moment, number, percentDone } from "@/lib/format";
import { counted } from "@/lib/resources";
import { startWords } from "@/lib/starting";
import { planFactors } from "./plan-factors";

export interface Fact {
  name: string;
  before?: string;
  value: string;
  after?: string;
  /** The whole of it, or the moment of a relative time. */
  title?: string;
}

/** Series of the engine that say how fast a job is, the most telling first, with their units. */
const SPEEDS = [
  ["throughput/tokens_per_second", "tokens/s"],
  ["throughput/samples_per_second", "samples/s"],
  ["samples_per_second", "samples/s"],
] as const;

export function factsOf(job: JobView, time: Time): Fact[] {
  return [...placeFacts(job, time), ...stepFacts(job), ...timeFacts(job, time), ...valueFacts(job), ...batchFacts(job)];
}

function placeFacts({ queue }: JobView, { now }: Time): Fact[] {
  if (queue === null) return [];
  const start = startWords(queue, now);
  return [
    { name: "place", value: `#${number(queue.position)}`, after: "in the queue" },
    ...(start === null ? [] : [{ name: "start", before: "starts", value: start.when, after: start.more }]),
  ];
}

function stepFacts({ progress, state }: JobView): Fact[] {
  if (progress === null) return [];
  const { step, steps, fraction, samples } = progress;
  const done = fraction === null || state === "succeeded" ? [] : [{ name: "done", value: percentDone(fraction) }];
  const title = samples === null ? undefined : `${number(samples)} samples`;
  return [
    ...done,
    {
      name: "step",
      before: "step",
      value: number(step),
      after: steps === null ? undefined : `of ${number(steps)}`,
      title,
    },
  ];
}

/** Time left, or else since the start. Without answers it stops, and the time left is not known. */
function timeFacts(job: JobView, { now, silentSince }: Time): Fact[] {
  const ended = hasEnded(job);
  const left = ended || silentSince !== null ? null : (job.progress?.eta_seconds ?? null);
  if (left !== null) {
    const title = `until about ${moment(new Date(now + left * 1_000).toISOString())}`;
    return [{ name: "left", value: roughly(left), after: "left", title }];
  }
  if (job.started_at === null) return [];
  const seconds = ((job.finished_at === null ? now : Date.parse(job.finished_at)) - Date.parse(job.started_at)) / 1_000;
  const title = `since ${moment(job.started_at)}`;
  if (ended) return [{ name: "duration", before: "duration", value: duration(seconds), title }];
  const elapsed = { name: "elapsed", value: duration(seconds) };
  if (silentSince === null) return [{ ...elapsed, after: "elapsed", title }];
  const stopped = `No answer since ${new Date(silentSince).toLocaleTimeString()}`;
  return [{ ...elapsed, after: "elapsed, stopped", title: stopped }];
}

/** No seconds of what takes longer than ten minutes: no end is known that well. */
function roughly(seconds: number): string {
  return seconds < 600 ? duration(seconds) : duration(seconds).replace(/ \d\d s$/, "");
}

function valueFacts(job: JobView): Fact[] {
  const { latest = {}, main } = job.progress ?? {};
  const facts: Fact[] = [];
  if (main != null && main in latest) facts.push({ name: "main", value: number(Number(latest[main])), after: main });
  const speed = hasEnded(job) ? undefined : SPEEDS.find(([name]) => name in latest);
  if (speed !== undefined) {
    const [name, unit] = speed;
    facts.push({ name: "speed", value: number(Number(Number(latest[name]).toPrecision(3))), after: unit });
  }
  return facts;
}

/** The batch as an equation: the promise, and how it is kept on these devices. */
function batchFacts({ plan, plan_sentence: sentence, attempt }: JobView): Fact[] {
  if (plan === null) {
    return attempt === null ? [] : [{ name: "ranks", value: counted(attempt.world_size, "rank") }];
  }
  const { batch, exact, factors } = planFactors(plan);
  const [world, ...others] = factors.map(({ value, name }, place) => (place === 0 ? `${value} ${name}` : value));
  const after = `${exact ? "=" : "over"} ${[world, ...others].join(" × ")}`;
  const words = factors.map(({ value, name }) => `${value} ${name}`).join(" × ");
  const title = exact || sentence === null ? `${number(batch)} samples in each optimizer step: ${words}` : sentence;
  return [{ name: "batch", before: "batch", value: number(batch), after, title }];
}
