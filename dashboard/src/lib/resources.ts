/** What a spec asks for and what nodes have, in words. Pure; the tests are beside it. */
import type { DeviceView, NodeView } from "@/api/generated";

/** "8 devices", "16 × NVIDIA H200 on 2 nodes that offer rack:a": of a submitted spec, which leaves defaults out. */
export function asksFor(spec: Record<string, unknown>): string {
  const resources = record(spec.resources);
  const gpus = resources.gpus ?? 1;
  const { min, max } = record(gpus);
  const count = typeof gpus === "number" ? String(gpus) : `${min ?? "?"} to ${max ?? "?"}`;
  const what =
    typeof resources.gpu_type === "string" ? `× ${resources.gpu_type}` : count === "1" ? "device" : "devices";
  const isSpread = typeof resources.nodes === "number" && resources.nodes > 1;
  const needs = Array.isArray(resources.needs) ? resources.needs.join(", ") : "";
  if (!isSpread && needs === "") return `${count} ${what}`;
  const where = isSpread ? `${resources.nodes} nodes` : "a node";
  return `${count} ${what} on ${where}${needs === "" ? "" : ` that ${isSpread ? "offer" : "offers"} ${needs}`}`;
}

/** "7 of 8 devices are free on 1 node." Devices of nodes that are given no work are not free to anybody. */
export function freeSentence(nodes: readonly NodeView[]): string {
  if (nodes.length === 0) return "No node is registered: nothing can start.";
  const ready = nodes.filter((node) => node.state === "ready");
  const all = nodes.flatMap((node) => node.devices);
  const free = ready.reduce((sum, node) => sum + node.devices_free, 0);
  const idle = nodes.length - ready.length;
  const held = all.filter(isHeld).length;
  const closed = all.length - free - held;
  const sentences = [`${free} of ${counted(all.length, "device")} ${free === 1 ? "is" : "are"} free.`];
  const types = new Map<string, number>();
  for (const device of ready.flatMap((node) => node.devices)) {
    if (!isHeld(device)) types.set(device.type, (types.get(device.type) ?? 0) + 1);
  }
  if (types.size > 1) {
    const each = [...types].sort(([a], [b]) => (a < b ? -1 : 1)).map(([type, count]) => `${count} ${type}`);
    sentences[0] = `${free} of ${counted(all.length, "device")} are free: ${each.join(", ")}.`;
  }
  if (idle > 0) {
    const lost = closed > 0 ? `, with ${counted(closed, "device")} that nobody holds` : "";
    sentences.push(`${counted(idle, "node")} ${idle === 1 ? "takes" : "take"} no work${lost}.`);
  }
  return sentences.join(" ");
}

/** A job of another project has no id here. */
function isHeld({ held, job_id }: DeviceView): boolean {
  return held === true || job_id !== null;
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** A section of a document; an empty one where there is none. */
export function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
