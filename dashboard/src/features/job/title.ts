/** Parts of the title of a job's page: the name, the state and progress, and the open part. */
import type { JobView } from "@/api/generated";
import { percentDone } from "@/lib/format";
import type { Tab } from "./tab";

export const TAB_NAMES: Record<Tab, string> = {
  overview: "Charts",
  logs: "Logs",
  timeline: "Timeline",
  configuration: "Configuration",
  checkpoints: "Checkpoints",
  files: "Files",
};

export function jobTitle(job: JobView, tab: Tab = "overview"): string[] {
  return [job.name, stateWords(job), ...(tab === "overview" ? [] : [TAB_NAMES[tab]])];
}

function stateWords(job: JobView): string {
  if (job.queue !== null) return `${job.state} #${job.queue.position}`;
  const fraction = job.state === "running" ? job.progress?.fraction : null;
  return fraction == null ? job.state : `${job.state} ${percentDone(fraction)}`;
}
