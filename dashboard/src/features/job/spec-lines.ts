/**
 * A spec as lines of YAML, each with where it comes from: from who submitted it, from a default, or settled at the submit
 * (the commit that a branch was, the job that a name meant).
 *
 * The only file of this page that knows YAML: it is loaded with the part that shows it.
 */
import { stringify } from "yaml";

export type Origin = "submitted" | "default" | "settled";

export interface SpecLine {
  text: string;
  origin: Origin;
  /** Of a settled value, what was submitted in its place. */
  asked?: string;
}

type Section = Record<string, unknown>;

export function yamlOf(spec: Section): string {
  return stringify(spec, { lineWidth: 100 });
}

/** The lines of `whole`, a spec with every default, as seen from what was submitted. Together they are the document. */
export function specLines(whole: Section, submitted: Section): SpecLine[] {
  return Object.entries(whole).flatMap(([key, value]) => linesOf(key, value, key in submitted, submitted[key]));
}

function linesOf(key: string, value: unknown, isSubmitted: boolean, asked: unknown): SpecLine[] {
  if (!isSubmitted) return written({ [key]: value }, "default");
  if (isSection(value) && isSection(asked) && Object.keys(value).length > 0) {
    const [head] = written({ [key]: { "": "" } }, "submitted");
    const inside = specLines(value, asked).map((line) => ({ ...line, text: `  ${line.text}` }));
    return head === undefined ? inside : [head, ...inside];
  }
  if (isSame(value, asked)) return written({ [key]: value }, "submitted");
  const shown = typeof asked === "string" ? asked : JSON.stringify(asked);
  return written({ [key]: value }, "settled").map((line, place) => (place === 0 ? { ...line, asked: shown } : line));
}

function written(part: Section, origin: Origin): SpecLine[] {
  return yamlOf(part)
    .replace(/\n$/, "")
    .split("\n")
    .map((text) => ({ text, origin }));
}

/** The service reads "3" as a number where one is expected; that settles nothing. */
function isSame(value: unknown, asked: unknown): boolean {
  if (Array.isArray(value) && Array.isArray(asked)) {
    return value.length === asked.length && value.every((one, place) => isSame(one, asked[place]));
  }
  if (typeof value === "number" && typeof asked === "string") return value === Number(asked);
  return JSON.stringify(value) === JSON.stringify(asked);
}

function isSection(value: unknown): value is Section {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
