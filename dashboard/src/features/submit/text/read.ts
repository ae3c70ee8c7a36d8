/**
 * From the YAML text of a job spec to its document, its values, and the JSON that is sent.
 *
 * Values are never checked here: what a spec may say is the service's to judge. Only a text that is no document at all,
 * or says what JSON cannot carry, stops here, with its line.
 */
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type ParsedNode,
  parseDocument,
} from "yaml";

export type Path = readonly (string | number)[];

export interface Unreadable {
  /** Counted from 1. */
  line: number;
  message: string;
  from: number;
  to: number;
}

export interface SpecText {
  text: string;
  document: Document.Parsed<ParsedNode>;
  /** Set where the text is no document; nothing else is then to be relied on. */
  unreadable: Unreadable | null;
  /** The document as JavaScript has it; null for an empty text. Large whole numbers lose digits: `json` keeps them. */
  value: unknown;
  /** The document as it is sent. */
  json: string;
}

/** Values in one document, aliases written out: a few lines of YAML can otherwise mean billions. */
const VALUES_MAX = 20_000;

export function readText(text: string): SpecText {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, keepSourceTokens: false });
  const at = (from: number, to: number, message: string): SpecText => ({
    text,
    document,
    unreadable: { line: Math.max(1, lines.linePos(from).line), message, from, to: Math.max(from, to) },
    value: null,
    json: "null",
  });
  const [error] = document.errors;
  if (error !== undefined) return at(error.pos[0], error.pos[1], error.message.split("\n")[0] ?? "not YAML");
  const odd: { from: number; to: number; message: string }[] = [];
  const json = writeJson(document, document.contents, odd, { left: VALUES_MAX });
  const [first] = odd;
  if (first !== undefined) return at(first.from, first.to, first.message);
  return { text, document, unreadable: null, value: JSON.parse(json), json };
}

/** The JSON of the value at `path`, digits as they were written; null where there is none. */
export function jsonAt(spec: SpecText, path: Path): string | null {
  const node = path.length === 0 ? spec.document.contents : spec.document.getIn(path, true);
  return isNode(node) ? writeJson(spec.document, node, [], { left: VALUES_MAX }) : null;
}

/** The value at `path` of a plain document; undefined where there is none. */
export function valueAt(value: unknown, path: Path): unknown {
  let here = value;
  for (const part of path) {
    if (typeof here !== "object" || here === null || !Object.hasOwn(here, part)) return undefined;
    here = (here as Record<string | number, unknown>)[part];
  }
  return here;
}

/** What a field shows of the value at `path`: numbers as they were written, nothing for null, null for lists and objects. */
export function sourceAt(spec: SpecText, path: Path): string | null {
  const node = spec.document.getIn(path, true);
  const scalar = isAlias(node) ? node.resolve(spec.document) : node;
  if (scalar === undefined || scalar === null) return "";
  if (!isScalar(scalar)) return null;
  if (scalar.value === null || scalar.value === undefined) return "";
  return typeof scalar.value === "number" ? (scalar.source ?? String(scalar.value)) : String(scalar.value);
}

const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

function writeJson(
  document: Document.Parsed<ParsedNode>,
  node: unknown,
  odd: { from: number; to: number; message: string }[],
  budget: { left: number },
): string {
  const [from, to] = (isNode(node) ? node.range : null) ?? ([0, 0, 0] as const);
  const refuse = (message: string) => {
    odd.push({ from, to, message });
    return "null";
  };
  budget.left -= 1;
  if (budget.left < 0)
    return odd.length > 0 ? "null" : refuse(`More than ${VALUES_MAX} values, the limit for a job spec`);
  if (isAlias(node)) {
    const meant = node.resolve(document);
    return meant === undefined ? refuse(`There is no anchor &${node.source}`) : writeJson(document, meant, odd, budget);
  }
  if (isMap(node)) {
    const pairs = node.items.map(({ key, value }) => {
      const name = isScalar(key) ? key.value : key;
      if (typeof name === "object" && name !== null) refuse("A field's name must be a text");
      return `${JSON.stringify(String(name))}:${writeJson(document, value, odd, budget)}`;
    });
    return `{${pairs.join(",")}}`;
  }
  if (isSeq(node)) return `[${node.items.map((item) => writeJson(document, item, odd, budget)).join(",")}]`;
  if (!isScalar(node)) return "null";
  const { value, source } = node;
  if (typeof value !== "number") return typeof value === "bigint" ? String(value) : (JSON.stringify(value) ?? "null");
  if (!Number.isFinite(value)) return refuse(`${source ?? value} is not a number that a job spec can hold`);
  // As it was written: JavaScript would make 1.0 a whole number, and round a seed beyond 2^53.
  return source !== undefined && JSON_NUMBER.test(source) ? source : String(value);
}
