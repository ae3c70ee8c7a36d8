/** From a JSON pointer of a refusal to the place in the text that a person should look at. */
import { isCollection, isMap, isNode, isScalar, isSeq } from "yaml";
import type { Path, SpecText } from "./read";

export interface Place {
  from: number;
  to: number;
  /** Counted from 1. */
  line: number;
}

/** The parts of a JSON pointer (RFC 6901). */
export function pathOf(pointer: string): string[] {
  if (pointer === "") return [];
  return pointer
    .replace(/^\//, "")
    .split("/")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

export function pointerOf(path: Path): string {
  return path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

/** `/train/batch/size` as `train.batch.size`. */
export function dotted(pointer: string): string {
  return pathOf(pointer).join(".");
}

/**
 * Where the value of `pointer` is written: a single value with its name; of a list or object its name, or its first line.
 * What is missing is looked for in what is around it; if nothing of it is there, the first line that says something.
 */
export function placeOf(spec: SpecText, pointer: string): Place {
  const { text, document } = spec;
  let node: unknown = document.contents;
  let place: [number, number] | null = null;
  for (const part of pathOf(pointer)) {
    if (isMap(node)) {
      const field = node.items.find(({ key }) => isScalar(key) && String(key.value) === part);
      if (field === undefined || !isScalar(field.key) || field.key.range == null) break;
      const [from, to] = field.key.range;
      const value = field.value;
      const single = isNode(value) && !isCollection(value) && value.range != null && value.range[1] > to;
      place = [from, single && isNode(value) && value.range != null ? value.range[1] : to];
      node = value;
    } else if (isSeq(node)) {
      const item = node.items[Number(part)];
      if (!isNode(item) || item.range == null) break;
      place = [item.range[0], item.range[1]];
      node = item;
    } else break;
  }
  const [from, to] = place ?? firstWords(text);
  return { from, to: oneLine(text, from, to), line: lineOf(text, from) };
}

export function lineOf(text: string, at: number): number {
  return text.slice(0, at).split("\n").length;
}

function firstWords(text: string): [number, number] {
  const found = /^[^\S\n]*[^#\s].*$/m.exec(text);
  return found === null ? [0, 0] : [found.index, found.index + found[0].length];
}

function oneLine(text: string, from: number, to: number): number {
  const stop = text.indexOf("\n", from);
  return stop < 0 ? Math.min(to, text.length) : Math.min(to, Math.max(stop, from));
}
