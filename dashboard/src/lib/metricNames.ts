/** What names of metrics say: the group they belong to, their order, and which way is better. */

export interface MetricGroup {
  name: string;
  metrics: string[];
}

/** In the order in which people look at them. What has no prefix of these is under the last. */
const GROUPS = ["train", "eval", "throughput", "time", "memory", "system", "metrics"] as const;

export function groupOf(metric: string): string {
  const prefix = metric.slice(0, Math.max(0, metric.indexOf("/")));
  return (GROUPS as readonly string[]).includes(prefix) ? prefix : "metrics";
}

/** By group, losses first, then by name with numbers as numbers: rank2 before rank10. */
export function grouped(metrics: Iterable<string>): MetricGroup[] {
  const groups = new Map<string, string[]>(GROUPS.map((name) => [name, []]));
  for (const metric of new Set(metrics)) groups.get(groupOf(metric))?.push(metric);
  return [...groups]
    .filter(([, found]) => found.length > 0)
    .map(([name, found]) => ({ name, metrics: found.sort(byInterest) }));
}

export function byInterest(a: string, b: string): number {
  return Number(isLoss(b)) - Number(isLoss(a)) || a.localeCompare(b, "en", { numeric: true });
}

function isLoss(metric: string): boolean {
  return /(^|[/_])loss($|[/_])/.test(metric);
}

/** Every word of the search is somewhere in the name, in any case and order. */
export function matches(metric: string, search: string): boolean {
  const name = metric.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => name.includes(word));
}

const LOW = /loss|error|perplexity|bits_per|nll|(^|[/_])(ppl|wer|cer|mae|mse|rmse)($|[/_])|_seconds$/;
const HIGH =
  /accuracy|(^|[/_])(acc|f1|auc|bleu|rouge|map|iou|mfu|r2)($|[/_])|precision|recall|reward|score|per_second$/;

/** Whether a lower or a higher value is better, where the name says so. */
export function betterWay(metric: string): "low" | "high" | null {
  if (groupOf(metric) === "system") return null;
  if (LOW.test(metric)) return "low";
  return HIGH.test(metric) ? "high" : null;
}
