/** Names and texts that a job chose, without characters that hide, move or reverse others. */

const UNPRINTED = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** Each character that is not printed is its escape: `\x1b`, `\u202e`. Those in `but` stay. */
export function printable(text: string, but = ""): string {
  return text.replace(UNPRINTED, (letter) => (but.includes(letter) ? letter : escapeOf(letter.codePointAt(0) ?? 0)));
}

function escapeOf(code: number): string {
  const digits = code.toString(16);
  if (code <= 0xff) return `\\x${digits.padStart(2, "0")}`;
  return code <= 0xffff ? `\\u${digits.padStart(4, "0")}` : `\\u{${digits}}`;
}
