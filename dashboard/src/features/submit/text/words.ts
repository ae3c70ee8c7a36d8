/** A command as people type it, and as the list of words that the spec has. Quotes as in a shell, and nothing else of it. */

export function splitWords(line: string): string[] {
  const words: string[] = [];
  for (const found of line.matchAll(/(?:[^\s"']+|"(?:[^"\\]|\\.)*"?|'[^']*'?)+/g)) {
    const word = found[0].replace(/"((?:[^"\\]|\\.)*)"?|'([^']*)'?/g, (_, double?: string, single?: string) =>
      double === undefined ? (single ?? "") : double.replace(/\\(.)/g, "$1"),
    );
    words.push(word);
  }
  return words;
}

export function joinWords(words: readonly string[]): string {
  return words
    .map((word) => (word !== "" && !/[\s"']/.test(word) ? word : `"${word.replace(/["\\]/g, "\\$&")}"`))
    .join(" ");
}
