/** What a node's state means, and what to do about it. Pure; the tests are beside it. */
import type { NodeView } from "@/api/generated";
import { ago, bytes } from "@/lib/format";
import { counted } from "@/lib/resources";
import type { Reading } from "./measured";

/** Null for a node that works: nothing needs to be said. */
export function meaning(node: NodeView): { means: string; next: string } | null {
  const running = new Set(node.devices.flatMap((device) => device.job_id ?? [])).size;
  const hasOthers = node.devices.some(({ job_id, held }) => held && job_id === null);
  const isEmpty = running === 0 && !hasOthers;
  const runsOn = hasOthers
    ? "Jobs there run on, also of other projects."
    : isEmpty
      ? "Nothing runs there."
      : `${counted(running, "job")} there ${running === 1 ? "runs" : "run"} on.`;
  switch (node.state) {
    case "ready":
      return null;
    case "draining":
      return {
        means: `It is given no more work${node.reason == null ? "" : `: ${node.reason.replace(/\.$/, "")}`}. ${runsOn}`,
        next: isEmpty ? "It can be taken away now, or given work again." : "It can be taken away when they have ended.",
      };
    case "quarantined":
      return {
        means: `It is given no more work: ${node.reason ?? "it failed several jobs"}. ${runsOn}`,
        next: "Look at what failed there, and fix the node. Then resume it: its failures are forgotten.",
      };
    case "leaving":
      return {
        means: `Its agent was stopped, so it is given no more work. ${runsOn}`,
        next: "Start the agent again to give it work: lockstep agent.",
      };
    case "lost":
      return {
        means: "It was silent for longer than its lease, so that what ran there is placed elsewhere.",
        next: "See that the machine is up and reaches the database, and that its agent runs there: lockstep agent. Remove it if it is gone for good.",
      };
  }
}

/** "Drained by ada 12 min ago." */
export function sinceInWords({ since, state, drained_by: by }: NodeView, now: number): string {
  const verb = state === "quarantined" ? "Quarantined" : "Drained";
  return since == null ? "" : `${verb}${by == null ? "" : ` by ${by}`} ${ago(since, now)}.`;
}

/** "8 × NVIDIA H200, 141 GiB each", by type. */
export function devicesInWords(node: NodeView): string {
  const groups = new Map<string, number>();
  for (const { type, memory_bytes: memory } of node.devices) {
    const words = memory === null ? type : `${type}, ${bytes(memory)}`;
    groups.set(words, (groups.get(words) ?? 0) + 1);
  }
  const each = (words: string, count: number) =>
    `${count} × ${words}${count > 1 && words.includes(",") ? " each" : ""}`;
  return [...groups].map(([words, count]) => each(words, count)).join("; ");
}

/** "87 % GPU"; "230 % CPU" of a rank that takes more than two cores. */
export function busyInWords({ value }: Reading, kind: string): string {
  return `${value > 0 && value < 1 ? "under 1" : Math.round(value)} % ${kind === "cpu" ? "CPU" : "GPU"}`;
}

/** "120 of 141 GiB"; "10.5 MiB" where the device says no size. */
export function memoryInWords({ value }: Reading, total: number | null): string {
  const [used, whole] = [bytes(value), total === null ? null : bytes(total)];
  if (whole === null) return used;
  const unit = whole.slice(whole.indexOf(" "));
  return `${used.endsWith(unit) ? used.slice(0, -unit.length) : used} of ${whole}`;
}
