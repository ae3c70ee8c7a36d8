/** What names of metrics say: the group they belong to, their order, and which way is better. */

export interface MetricGroup {
  name: string;
  metrics: string[];
}

/** What has no prefix. */
const WITHOUT_PREFIX = "metrics";
/** What people look at first, and what a machine reports; in between are a job's own prefixes by name. */
const FIRST: readonly string[] = ["train", "eval", "val", "validation", "test"];
const LAST: readonly string[] = [WITHOUT_PREFIX, "throughput", "time", "memory", "system"];
/** What the service measures of machines while a job runs on them. */
export const SYSTEM = "system";

/** The prefix of a name: what is before its first `/`. */
export function groupOf(metric: string): string {
  const at = metric.indexOf("/");
  return at > 0 ? metric.slice(0, at) : WITHOUT_PREFIX;
}

/**
 * By prefix, losses first, then by name with numbers as numbers: rank2 before rank10.
 *
 * Prefixes that differ in a number only, such as `layer.0` and `layer.1`, are one group: a model has a hundred of them.
 */
export function grouped(metrics: Iterable<string>): MetricGroup[] {
  const names = [...new Set(metrics)];
  const siblings = new Map<string, Set<string>>();
  for (const prefix of names.map(groupOf)) {
    const stem = stemOf(prefix);
    siblings.set(stem, (siblings.get(stem) ?? new Set()).add(prefix));
  }
  const groups = new Map<string, string[]>();
  for (const metric of names) {
    const prefix = groupOf(metric);
    const stem = stemOf(prefix);
    const name = stem !== prefix && (siblings.get(stem)?.size ?? 0) > 1 ? stem : prefix;
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [metric]);
    else group.push(metric);
  }
  return [...groups]
    .sort(([a], [b]) => placeOf(a) - placeOf(b) || a.localeCompare(b, "en", { numeric: true }))
    .map(([name, found]) => ({ name, metrics: found.sort(byInterest) }));
}

/** `layer.3` and `layer_3` without the number; a name that is nothing else stays. */
function stemOf(prefix: string): string {
  return /^(.*?[^\d._-])[._-]?\d+$/.exec(prefix)?.[1] ?? prefix;
}

function placeOf(group: string): number {
  if (FIRST.includes(group)) return FIRST.indexOf(group) - FIRST.length;
  return LAST.indexOf(group) + 1;
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
  if (groupOf(metric) === SYSTEM) return null;
  if (LOW.test(metric)) return "low";
  return HIGH.test(metric) ? "high" : null;
}
