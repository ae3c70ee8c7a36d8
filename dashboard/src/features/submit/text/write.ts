/** How a value is written into YAML: short, on one line, and such that it reads back as what was meant. */
import { parse } from "yaml";

/** What a person typed where a number or a word is expected: taken as YAML takes it, so `8` is a number and `auto` a word. */
export class Typed {
  constructor(readonly text: string) {}
}

/** A text without any sign that means something to YAML, here or inside of brackets. */
const PLAIN = /^(?:--?)?[\p{L}\p{N}_./][\p{L}\p{N}_./@+:= -]*$/u;
const NUMBER = /^[-+]?[.\d][\d_.eE+-]*$/;

export function write(value: unknown): string {
  if (value instanceof Typed) return typed(value.text.trim());
  if (typeof value === "string") return isPlain(value) && readsAs(value) === value ? value : JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(write).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    return `{${Object.entries(value)
      .map(([name, inner]) => `${write(name)}: ${write(inner)}`)
      .join(", ")}}`;
  }
  return String(value);
}

/** The value that `write` lets be read back. */
export function meaning(value: unknown): unknown {
  return value instanceof Typed ? parse(write(value)) : value;
}

function typed(text: string): string {
  if (text === "") return "null";
  if (NUMBER.test(text) || isPlain(text)) return text;
  return JSON.stringify(text);
}

function isPlain(text: string): boolean {
  return PLAIN.test(text) && !text.includes(": ") && !text.endsWith(":") && !text.endsWith(" ");
}

function readsAs(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}
