/** Sentences of the first page. Pure; the tests are beside it. */
import type { BudgetNotice, DeviceCounts, HomeJobs, JobNotice, JobView, NodeNotice } from "@/api/generated";
import { hasEnded } from "@/lib/ended";
import { ago, duration, number } from "@/lib/format";
import { startWords } from "@/lib/starting";

export type Notice = NodeNotice | JobNotice | BudgetNotice;

/** A time in words, and the moment that it stands for; null where there is none. */
export interface When {
  words: string;
  at: string | null;
}

/** When a job ends, starts or has ended. */
export function whenOf(job: JobView, now: number): When {
  if (hasEnded(job)) return { words: job.finished_at === null ? "" : ago(job.finished_at, now), at: job.finished_at };
  if (job.state === "queued") {
    return { words: startWords(job.queue, now).when, at: job.queue?.estimated_start ?? null };
  }
  const left = job.progress?.eta_seconds;
  if (job.state !== "running" || left == null) return { words: "", at: null };
  return { words: `${duration(left)} left`, at: new Date(now + left * 1_000).toISOString() };
}

/** "6 running, 3 wait, 1 failed in 24 h": without zeros. */
export function jobsSentence({ running, queued, failed }: HomeJobs): string {
  const parts = [
    running === 0 ? "" : `${running} running`,
    queued === 0 ? "" : `${queued} ${queued === 1 ? "waits" : "wait"}`,
    failed === 0 ? "" : `${failed} failed in 24 h`,
  ];
  return parts.filter((part) => part !== "").join(", ");
}

export interface Share {
  name: string;
  count: number;
  kind: "in_use" | "idle" | "free" | "closed";
  /** Of all devices. */
  percent: number;
}

/** The parts of the bar of all devices, and their legend; empty ones are left out. */
export function partsOf(devices: DeviceCounts): Share[] {
  const names = { in_use: "in use", idle: "held but idle", free: "free", closed: "on nodes without work" } as const;
  return (Object.keys(names) as (keyof typeof names)[])
    .map((kind) => ({
      name: names[kind],
      kind,
      count: devices[kind],
      percent: devices.total === 0 ? 0 : (100 * devices[kind]) / devices.total,
    }))
    .filter(({ count }) => count > 0);
}

export interface NoticeWords {
  what: string;
  is: string;
  detail: string;
  when: When | null;
}

export function noticeWords(notice: Notice, now: number): NoticeWords {
  switch (notice.kind) {
    case "node": {
      const { name, state, reason, since, drained_by: by, seen_at: seen } = notice;
      const moment = state === "lost" ? seen : since;
      const verb = state === "lost" ? "last seen" : by === null ? "" : `by ${by}`;
      const when = moment === null ? null : { words: `${verb} ${ago(moment, now)}`.trim(), at: moment };
      return { what: name, is: `is ${state}`, detail: reason ?? "", when };
    }
    case "job":
      return {
        what: notice.name,
        is: "failed",
        // The time follows.
        detail: notice.message.replace(/\.$/, ""),
        when: { words: ago(notice.finished_at, now), at: notice.finished_at },
      };
    case "budget": {
      const { project, used_gpu_hours: used, budget_gpu_hours: budget } = notice;
      const share = budget === 0 ? "all" : `${Math.round((100 * used) / budget)} %`;
      const detail = `${number(used)} of ${number(budget)} in 30 days`;
      return { what: project, is: `has used ${share} of its device-hours`, detail, when: null };
    }
  }
}
