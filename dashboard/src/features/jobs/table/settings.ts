/**
 * Settings of jobs by path, as the service names them (docs/lists.md): they name the columns that may be chosen, and are
 * shown before a column is asked for. Values of chosen columns are the service's.
 */
import { flattened } from "@/lib/differing";

/** Paths that are columns of the job, or name files and other jobs. */
const ELSEWHERE =
  /^(name|project|kind|priority|labels|secrets|code|continues|outputs|resources\.gpus|train\.init_from|script\.command)(\.|$)/;
const FLAG = /^--?([A-Za-z][\w.-]*)(?:=([\s\S]*))?$/;
const PAIR = /^([A-Za-z_][\w./-]*)=([\s\S]*)$/;

/** The leaves of a spec, and the arguments of a script: `--lr 0.1`, `--lr=0.1` and `lr=0.1` are `args.lr`. */
export function settingsOf(spec: Record<string, unknown>): ReadonlyMap<string, string> {
  const found = kept.get(spec);
  if (found !== undefined) return found;
  const settings = new Map([...flattened(spec)].filter(([path, value]) => !ELSEWHERE.test(path) && isValue(value)));
  for (const [name, value] of argumentsOf(spec.script)) settings.set(`args.${name}`, value);
  kept.set(spec, settings);
  return settings;
}

/** A poll brings the same specs again. */
const kept = new WeakMap<object, ReadonlyMap<string, string>>();

function isValue(value: string): boolean {
  return value !== "null" && value !== "[]" && value !== "{}";
}

function argumentsOf(script: unknown): [string, string][] {
  const command = (script as { command?: unknown } | undefined)?.command;
  const words = Array.isArray(command) ? command.slice(1).map(String) : [];
  return words.flatMap((word, place): [string, string][] => {
    const [, flag, own] = FLAG.exec(word) ?? [];
    const [, name, value] = PAIR.exec(word) ?? [];
    if (flag !== undefined) {
      const after = words[place + 1] ?? "--";
      const isAlone = after === "--" || FLAG.test(after);
      return [[flag, own ?? (isAlone ? "true" : after)]];
    }
    return name === undefined ? [] : [[name, value ?? ""]];
  });
}
