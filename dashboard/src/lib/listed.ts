/** A list in an address: `a,b`, or a real list where a part has commas of its own. */

/** Each once, in their order. */
export function listed(value: unknown): string[] {
  const parts = Array.isArray(value) ? value.map(String) : (asText(value)?.split(",") ?? []);
  return [...new Set(parts.map((part) => part.trim()).filter((part) => part !== ""))];
}

/** The text of one value: the router reads `?search=64` as a number and `?search=true` as a truth value. */
export function asText(value: unknown): string | undefined {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
    ? String(value)
    : undefined;
}

/** So that `listed` reads the same again; undefined for none. */
export function asList(parts: readonly string[]): string | string[] | undefined {
  if (parts.length === 0) return undefined;
  return parts.some((part) => part.includes(",")) ? [...parts] : parts.join(",");
}

/** Texts that the service refuses in any field. */
const REFUSED = "\0";

/** The text of one value that is neither empty nor longer than the service takes. */
export function boundedText(value: unknown, charsMax: number): string | undefined {
  const trimmed = asText(value)?.trim() ?? "";
  return trimmed === "" || trimmed.length > charsMax || trimmed.includes(REFUSED) ? undefined : trimmed;
}
