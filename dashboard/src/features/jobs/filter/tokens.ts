/**
 * Filter of the list as a text: pieces with spaces between them, as the service splits it.
 *
 * Not here: what a token means. The service alone reads it, and names those that it cannot use.
 */

/** The service's own bound for a filter. */
export const FILTER_CHARS_MAX = 2_000;

/** The pieces between spaces that are not in quotes. */
export function tokensOf(filter: string): string[] {
  return filter.match(/(?:"[^"]*"|[^\s"]|"[^"]*$)+/g) ?? [];
}

/** True while a quote is open: a space belongs to the token. */
export function isOpen(token: string): boolean {
  return token.split('"').length % 2 === 0;
}

/** True for a field with an operator; a word is a part of a name, and may be looked for while it is typed. */
export function isCondition(token: string): boolean {
  return /[:=<>]/.test(token.replace(/"[^"]*"?/g, ""));
}

/** A name or a value as the service reads it as one: in quotes if it has a character of the grammar. */
export function quoted(text: string): string {
  return /^[\w./@+-]+$/.test(text) ? text : `"${text.replaceAll('"', "")}"`;
}

/** The token of one value of a column: `owner:ada`, `label:team=vision`, `setting:args.lr=0.1`. */
export function tokenFor(column: string, value: string): string {
  const [before, ...rest] = column.split(":");
  // The name of a label may have any character; the colon before it ends no field.
  const field = rest.length === 0 ? before : `${before}:${quoted(rest.join(":"))}`;
  return `${field}${rest.length === 0 ? ":" : "="}${quoted(value)}`;
}

/** `filter` with one token more, which it has once. */
export function withToken(filter: string | undefined, token: string): string {
  const tokens = tokensOf(filter ?? "");
  return tokens.includes(token) ? tokens.join(" ") : [...tokens, token].join(" ");
}
