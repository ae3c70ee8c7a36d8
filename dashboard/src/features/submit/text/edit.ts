/**
 * One value of a YAML text changed, and nothing else: comments, order, spacing and the way numbers are written stay.
 *
 * The text is cut at the value's own place. Whether that meant what it should is checked by reading it again; where it did
 * not (anchors, block texts, lists of objects), yaml's own Document is changed and written out, which keeps comments and
 * order but not the spacing.
 */
import { isCollection, isMap, isScalar, isSeq, type Pair, type ParsedNode, type YAMLMap, type YAMLSeq } from "yaml";
import { type Path, readText, type SpecText, valueAt } from "./read";
import { meaning, write } from "./write";

interface Cut {
  from: number;
  to: number;
  put: string;
}
type Field = Pair<ParsedNode, ParsedNode | null>;

/**
 * The text with `value` at `path`; objects on the way are made.
 *
 * `order` names the fields of the object that the value is in, so that a new one goes behind those it usually follows.
 */
export function setAt(text: string, path: Path, value: unknown, order: readonly string[] = []): string {
  const spec = readText(text);
  if (spec.unreadable !== null || path.length === 0) return text;
  const wanted = withValue(spec.value, path, meaning(value));
  return finished(spec, cutToSet(spec, path, value, order), wanted, () => {
    const { document } = spec;
    for (let end = 1; end < path.length; end += 1) {
      const inner = document.getIn(path.slice(0, end), true);
      if (!isCollection(inner)) document.setIn(path.slice(0, end), document.createNode({}));
    }
    document.setIn(path, document.createNode(meaning(value)));
  });
}

/** The text of a job in this project, named behind the job. */
export function inProject(text: string, project: string): string {
  return setAt(text, ["project"], project, ["name", "project"]);
}

/** Of these, being empty says something that not being there does not. */
const SECTIONS = new Set(["train", "script"]);

/** The text without the value at `path`, and without the object around it where that is then empty. */
export function removeAt(text: string, path: Path): string {
  const spec = readText(text);
  if (spec.unreadable !== null || valueAt(spec.value, path) === undefined) return text;
  const around = path.slice(0, -1);
  const left = valueAt(spec.value, around);
  const isSection = around.length === 1 && SECTIONS.has(String(around[0]));
  const isLast = around.length > 0 && !Array.isArray(left) && Object.keys(left as object).length === 1;
  if (isLast && !isSection) return removeAt(text, around);
  const wanted = withoutValue(spec.value, path);
  return finished(spec, cutToRemove(spec, path), wanted, () => spec.document.deleteIn(path));
}

/** The text with the field at `path` under another name, in its place. */
export function renameAt(text: string, path: Path, name: string): string {
  const spec = readText(text);
  const field = fieldAt(spec, path);
  if (spec.unreadable !== null || field?.key.range == null) return text;
  const [from, to] = field.key.range;
  const renamed = splice(text, { from, to, put: write(name) });
  return readText(renamed).unreadable === null ? renamed : text;
}

function finished(spec: SpecText, cut: Cut | null, wanted: unknown, change: () => void): string {
  if (cut !== null) {
    const text = splice(spec.text, cut);
    const read = readText(text);
    if (read.unreadable === null && same(read.value, wanted)) return text;
  }
  change();
  return spec.document.toString({ lineWidth: 0, flowCollectionPadding: false });
}

function splice(text: string, { from, to, put }: Cut): string {
  return text.slice(0, from) + put + text.slice(to);
}

function cutToSet(spec: SpecText, path: Path, value: unknown, order: readonly string[]): Cut | null {
  const { text } = spec;
  let node: ParsedNode | null = spec.document.contents;
  if (node === null || (isScalar(node) && node.value === null)) {
    const start = text === "" || text.endsWith("\n") ? text : `${text}\n`;
    return { from: 0, to: text.length, put: `${start}${line(path, value)}\n` };
  }
  for (const [index, part] of path.entries()) {
    const rest = path.slice(index + 1);
    if (isSeq(node)) {
      node = ((node as YAMLSeq).items[Number(part)] as ParsedNode | undefined) ?? null;
      if (node?.range == null || isCollection(node) === (rest.length === 0)) return null;
      if (rest.length === 0) return { from: node.range[0], to: node.range[1], put: write(value) };
      continue;
    }
    if (!isMap(node)) return null;
    const field: Field | undefined = (node.items as Field[]).find(({ key }) => nameOf(key) === String(part));
    if (field === undefined) return cutToInsert(text, node, path.slice(index), value, order);
    if (rest.length === 0) return cutToReplace(text, field, write(value));
    if (!isCollection(field.value)) return cutToReplace(text, field, write(nested(rest, value)));
    node = field.value;
  }
  return null;
}

function cutToReplace(text: string, field: Field, put: string): Cut {
  const { value } = field;
  const colon = afterColon(text, field);
  if (value === null || isEmpty(value)) {
    const spaces = /^ *(?=[,}])/.exec(text.slice(colon))?.[0].length ?? 0;
    return { from: colon, to: colon + spaces, put: ` ${put}` };
  }
  if (isCollection(value) && !value.flow) return { from: colon, to: end(text, field), put: ` ${put}` };
  const [from, to] = value.range;
  return { from, to, put };
}

function cutToInsert(
  text: string,
  map: YAMLMap.Parsed,
  path: Path,
  value: unknown,
  order: readonly string[],
): Cut | null {
  const items = map.items as Field[];
  const put = line(path, value);
  const before = items.findLastIndex(({ key }) => {
    const place = order.indexOf(nameOf(key));
    return place >= 0 && place < order.indexOf(String(path[0]));
  });
  const last = items[before >= 0 ? before : items.length - 1];
  if (last === undefined) return map.flow ? { from: map.range[0] + 1, to: map.range[0] + 1, put } : null;
  const at = end(text, last);
  if (map.flow) return { from: at, to: at, put: `, ${put}` };
  const first = items[0]?.key.range?.[0] ?? 0;
  const indent = " ".repeat(first - lineStart(text, first));
  const stop = lineEnd(text, at);
  return { from: stop, to: stop, put: `\n${indent}${put}` };
}

function cutToRemove(spec: SpecText, path: Path): Cut | null {
  const { text } = spec;
  const map = path.length === 1 ? spec.document.contents : spec.document.getIn(path.slice(0, -1), true);
  if (!isMap(map)) return null;
  const items = map.items as Field[];
  const index = items.findIndex(({ key }) => nameOf(key) === String(path.at(-1)));
  const field = items[index];
  if (field?.key.range == null) return null;
  if (items.length === 1 && !map.flow) {
    const around = fieldAt(spec, path.slice(0, -1));
    return around === null ? null : cutToReplace(text, around, "{}");
  }
  const from = field.key.range[0];
  const to = end(text, field);
  if (!map.flow) {
    const start = lineStart(text, from);
    return text.slice(start, from).trim() === ""
      ? { from: start, to: Math.min(lineEnd(text, to) + 1, text.length), put: "" }
      : null;
  }
  const next = items[index + 1]?.key.range?.[0];
  if (next !== undefined) return { from, to: next, put: "" };
  const former = items[index - 1];
  return { from: former === undefined ? from : end(text, former), to, put: "" };
}

function fieldAt(spec: SpecText, path: Path): Field | null {
  if (path.length === 0) return null;
  const map = path.length === 1 ? spec.document.contents : spec.document.getIn(path.slice(0, -1), true);
  if (!isMap(map)) return null;
  return (map.items as Field[]).find(({ key }) => nameOf(key) === String(path.at(-1))) ?? null;
}

/** Where a field's value ends, without what follows it on its line. */
function end(text: string, field: Field): number {
  let node: ParsedNode | null = field.value;
  let last = field;
  while (node !== null && isCollection(node) && !node.flow && node.items.length > 0) {
    if (isSeq(node)) {
      node = node.items.at(-1) as ParsedNode;
    } else {
      last = node.items.at(-1) as Field;
      node = last.value;
    }
  }
  if (node === null || isEmpty(node)) return afterColon(text, last);
  const at = node.range[1];
  return text[at - 1] === "\n" ? at - 1 : at;
}

function afterColon(text: string, field: Field): number {
  const name = field.key.range?.[1] ?? 0;
  return text.indexOf(":", name) + 1;
}

/** Nothing is written: `steps:` alone. */
function isEmpty(node: ParsedNode): boolean {
  return isScalar(node) && node.value === null && (node.source ?? "") === "";
}

function line(path: Path, value: unknown): string {
  return `${write(String(path[0]))}: ${write(nested(path.slice(1), value))}`;
}

function nested(path: Path, value: unknown): unknown {
  return path.reduceRight((inner, part) => ({ [part]: inner }), value);
}

function nameOf(key: ParsedNode): string {
  return isScalar(key) ? String(key.value) : "";
}

function lineStart(text: string, at: number): number {
  return text.lastIndexOf("\n", at - 1) + 1;
}

function lineEnd(text: string, at: number): number {
  const stop = text.indexOf("\n", at);
  return stop < 0 ? text.length : stop;
}

function withValue(value: unknown, path: Path, put: unknown): unknown {
  const [first, ...rest] = path;
  if (first === undefined) return put;
  if (Array.isArray(value))
    return value.map((item, index) => (index === Number(first) ? withValue(item, rest, put) : item));
  const object = typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  return { ...object, [first]: withValue(object[first], rest, put) };
}

function withoutValue(value: unknown, path: Path): unknown {
  const [first, ...rest] = path;
  if (first === undefined || typeof value !== "object" || value === null) return value;
  if (rest.length > 0) return withValue(value, [first], withoutValue(valueAt(value, [first]), rest));
  if (Array.isArray(value)) return value.filter((_, index) => index !== Number(first));
  return Object.fromEntries(Object.entries(value).filter(([name]) => name !== String(first)));
}

/** Whether two plain values are equal, whatever the order of fields. */
export function same(one: unknown, other: unknown): boolean {
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return one === other;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && same(valueAt(one, [name]), valueAt(other, [name])))
  );
}
