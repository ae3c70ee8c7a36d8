/** The queue by project, and the jobs of a project by the cause of their wait. Pure; the tests are beside it. */
import type { JobView, ShareView } from "@/api/generated";
import { number } from "@/lib/format";

export interface Section {
  project: string;
  /** Null until the shares are known. */
  share: ShareView | null;
  jobs: readonly JobView[];
}

/** Jobs that wait for the same reason, in their order. */
export interface Cause {
  reason: string;
  jobs: readonly JobView[];
}

/** By name, so that none moves. `isWhole`: not of one project only, so those that have devices and no waiting job count. */
export function sectionsOf(jobs: readonly JobView[], shares: readonly ShareView[], isWhole: boolean): Section[] {
  const waiting = groupedBy(jobs, ({ project }) => project);
  const share = new Map(shares.map((each) => [each.project, each]));
  const working = isWhole ? shares.filter(({ in_use }) => in_use > 0).map(({ project }) => project) : [];
  return [...new Set([...waiting.keys(), ...working])]
    .sort()
    .map((project) => ({ project, share: share.get(project) ?? null, jobs: waiting.get(project) ?? [] }));
}

export function causesOf(jobs: readonly JobView[]): Cause[] {
  return [...groupedBy(jobs, reasonOf)].map(([reason, those]) => ({ reason, jobs: those }));
}

/** The groups in the order of their first jobs. */
function groupedBy(jobs: readonly JobView[], of: (job: JobView) => string): Map<string, JobView[]> {
  const found = new Map<string, JobView[]>();
  for (const job of jobs) {
    const those = found.get(of(job));
    if (those === undefined) found.set(of(job), [job]);
    else those.push(job);
  }
  return found;
}

export function reasonOf({ queue, reason }: Pick<JobView, "queue" | "reason">): string {
  return queue?.reason ?? reason ?? "";
}

/** "3–14", of the first and the last of several jobs. */
export function placesOf(jobs: readonly JobView[]): string {
  const places = jobs.flatMap(({ queue }) => queue?.position ?? []);
  return places.length === 0 ? "–" : [...new Set([places[0], places.at(-1)])].join("–");
}

/** 5.3: a part of a device counts in tenths. */
export function tenths(devices: number): string {
  return number(Math.round(devices * 10) / 10);
}

/** Lengths of the bar of a share, in percent: the devices in use, and the mark of those that it is entitled to. */
export function barOf({ in_use, entitled }: Pick<ShareView, "in_use" | "entitled">) {
  const whole = Math.max(in_use, entitled ?? 0);
  return whole === 0 || entitled === null ? null : { used: (100 * in_use) / whole, entitled: (100 * entitled) / whole };
}
