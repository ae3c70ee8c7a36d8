/** The memory forecast of a plan in words: what a rank needs, its parts, what the device allows, and the source. */
import type { MemoryForecast, PlannedMemory, PlanView } from "@/api/generated";
import { bytes } from "@/lib/format";

export interface MemoryWords {
  /** What each rank needs, or why that is not known. */
  rank: string;
  /** The largest first; those below half a percent are left out. */
  parts: string | null;
  device: string | null;
  /** Whether the device has too little. */
  isShort: boolean;
  source: string | null;
}

const PARTS = ["weights", "buffers", "gradients", "optimizer", "activations", "temporary", "buckets"] as const;
const SMALLEST_SHARE = 0.005;

/** Null for a script, whose memory nothing is known of. */
export function memoryOf({ memory }: PlanView): MemoryWords | null {
  if (memory == null) return null;
  const { forecast, micro_batch_size: micro } = memory;
  const device = { device: deviceOf(memory), isShort: isShort(memory) };
  if (memory.state === "computing") return { rank: "being computed …", parts: null, ...device, source: null };
  if (forecast == null) {
    return { rank: `no forecast: ${memory.why ?? "not known"}`, parts: null, ...device, source: null };
  }
  const samples = micro == null ? "" : ` with micro-batches of ${micro}`;
  const rank = `about ${bytes(forecast.peak)} on each device${ofStages(forecast)}${samples}`;
  return { rank, parts: partsOf(forecast), ...device, source: sourceOf(memory) };
}

/** The largest stage of a pipeline, whose parts follow, and all stages; empty without one. */
function ofStages({ stages = [], peak }: MemoryForecast): string {
  if (stages.length === 0) return "";
  const largest = stages.findIndex((stage) => stage.peak === peak);
  return ` of stage ${largest} (by stage ${stages.map((stage) => bytes(stage.peak)).join(", ")})`;
}

function partsOf(forecast: MemoryForecast): string {
  return PARTS.map((name) => [name, forecast[name]] as const)
    .filter(([, size]) => size > SMALLEST_SHARE * forecast.peak)
    .sort(([, one], [, other]) => other - one)
    .map(([name, size]) => `${name} ${bytes(size)}`)
    .join(" · ");
}

function isShort({ micro_batch_size: micro, micro_batch_size_max: most }: PlannedMemory): boolean {
  return most != null && (most === 0 || (micro != null && micro > most));
}

function deviceOf(memory: PlannedMemory): string | null {
  const { capacity_bytes: capacity, device_type: type, micro_batch_size_max: most } = memory;
  if (capacity == null) return null;
  const has = `${bytes(capacity)} on each ${type}`;
  if (most == null) return has;
  if (most === 0) return `${has}: no micro-batch fits, not even one sample`;
  return `${has}: ${isShort(memory) ? "only " : ""}micro-batches of up to ${most} fit`;
}

function sourceOf({ source, job, measured_bytes: measured }: PlannedMemory): string {
  if (source !== "history") return "computed from the task";
  const took = measured == null ? "" : `, which took ${bytes(measured)}`;
  return `as forecast for job ${job?.slice(-8)}${took}`;
}
