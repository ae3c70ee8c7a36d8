/** Settings of compared jobs: what was submitted, without ids, digests, uploads and names. */
import type { JobView } from "@/api/generated";
import { flattened } from "@/lib/differing";

/** Parts of a spec that name the job, its files or other jobs, or that do not decide what it computes. */
const NONE: ReadonlySet<string> = new Set([
  "name",
  "project",
  "kind",
  "priority",
  "labels",
  "secrets",
  "code",
  "continues",
  "outputs",
  "train.init_from",
  "script.command",
]);
const FLAG = /^--?([A-Za-z][\w.-]*)(?:=([\s\S]*))?$/;
const PAIR = /^([A-Za-z_][\w./-]*)=([\s\S]*)$/;
export const LABEL = "label:";

export type Settings = ReadonlyMap<string, string>;

/** A setting in which jobs differ. */
export interface Column {
  path: string;
  /** The end of the path, as long as no other column has the same. */
  title: string;
}

/** By path; arguments of a script as `args.lr`, labels as `label:team`. */
export function settingsOf({ spec, labels }: Pick<JobView, "spec" | "labels">): Settings {
  const found = new Map<string, string>();
  for (const [path, value] of flattened(spec)) if (!isNone(path)) found.set(path, value);
  for (const [path, value] of argumentsIn(spec)) found.set(path, value);
  for (const [key, value] of Object.entries(labels)) found.set(`${LABEL}${key}`, value);
  return found;
}

function isNone(path: string): boolean {
  const parts = path.split(".");
  return parts.some((_, index) => NONE.has(parts.slice(0, index + 1).join(".")));
}

/** `--lr 0.1`, `--lr=0.1` and `lr=0.1` as the service reads them; the words without a name are `args`. */
function argumentsIn(spec: JobView["spec"]): [string, string][] {
  const script = spec.script;
  const command = typeof script === "object" && script !== null && "command" in script ? script.command : null;
  if (!Array.isArray(command)) return [];
  const words = command.slice(1).map(String);
  const found: [string, string][] = [];
  const others: string[] = [];
  for (let place = 0; place < words.length; place += 1) {
    const word = words[place] as string;
    const [flag, pair] = [FLAG.exec(word), PAIR.exec(word)];
    if (flag !== null) {
      const after = words[place + 1];
      const isAlone = after === undefined || after === "--" || FLAG.test(after);
      found.push([`args.${flag[1]}`, flag[2] ?? (isAlone ? "true" : (after as string))]);
      if (flag[2] === undefined && !isAlone) place += 1;
    } else if (pair !== null) found.push([`args.${pair[1]}`, pair[2] as string]);
    else others.push(word);
  }
  return others.length > 0 ? [...found, ["args", others.join(" ")]] : found;
}

/** Settings in which the jobs differ, in the order in which the jobs first have them; labels last. */
export function columnsOf(all: readonly Settings[]): Column[] {
  const paths = [...new Set(all.flatMap((settings) => [...settings.keys()]))].filter((path) =>
    all.some((settings) => settings.get(path) !== all[0]?.get(path)),
  );
  const ends = paths.map(endOf);
  const columns = paths.map((path, index) => {
    const end = ends[index] as string;
    return { path, title: ends.filter((each) => each === end).length === 1 ? end : path };
  });
  return [...columns].sort((a, b) => Number(a.path.startsWith(LABEL)) - Number(b.path.startsWith(LABEL)));
}

export function endOf(path: string): string {
  if (path.startsWith(LABEL)) return path.slice(LABEL.length);
  return path.split(".").at(-1) as string;
}

/** Numbers before texts and by their size, and what is missing last. */
export function compared(one: string | undefined, other: string | undefined): number {
  if (one === undefined || other === undefined) return Number(one === undefined) - Number(other === undefined);
  const [first, second] = [numberOf(one), numberOf(other)];
  if (first !== null && second !== null) return first - second;
  if (first !== null || second !== null) return first === null ? 1 : -1;
  return one < other ? -1 : Number(one > other);
}

export function numberOf(text: string): number | null {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value : null;
}
