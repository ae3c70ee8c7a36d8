/** A list in an address: `a,b`, or a real list where a part has commas of its own. */

/** Each once, in their order. */
export function listed(value: unknown): string[] {
  const parts = Array.isArray(value)
    ? value.map(String)
    : typeof value === "string"
      ? value.split(",")
      : typeof value === "number"
        ? [String(value)]
        : [];
  return [...new Set(parts.map((part) => part.trim()).filter((part) => part !== ""))];
}

/** So that `listed` reads the same again; undefined for none. */
export function asList(parts: readonly string[]): string | string[] | undefined {
  if (parts.length === 0) return undefined;
  return parts.some((part) => part.includes(",")) ? [...parts] : parts.join(",");
}
