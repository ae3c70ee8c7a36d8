/**
 * A log line with terminal escapes as pieces of plain text with a look, and where a searched word stands in it.
 *
 * ansi_up reads the escapes and escapes what is HTML in the text; its answer is read back into pieces, so that nothing of
 * a log is ever put into the page as HTML, and colours are names that the theme fills. Colours beyond the sixteen named
 * ones become the nearest of those: a log's own shade could not be read on both grounds.
 */
import { AnsiUp } from "ansi_up";

export interface Piece {
  text: string;
  /** Names of looks: `red`, `bright-red`, `on-blue`, `bold`, `faint`, `italic`, `underline`. */
  looks: string[];
  /** Part of what is searched for. */
  hit?: boolean;
}

const NAMED: Record<string, readonly [number, number, number]> = {
  black: [0, 0, 0],
  red: [187, 0, 0],
  green: [0, 187, 0],
  yellow: [187, 187, 0],
  blue: [0, 0, 187],
  magenta: [187, 0, 187],
  cyan: [0, 187, 187],
  white: [255, 255, 255],
  "bright-black": [85, 85, 85],
  "bright-red": [255, 85, 85],
  "bright-green": [0, 255, 0],
  "bright-yellow": [255, 255, 85],
  "bright-blue": [85, 85, 255],
  "bright-magenta": [255, 85, 255],
  "bright-cyan": [85, 255, 255],
};

/** The last state of a line that was rewritten with `\r`. Most are collapsed before they are stored. */
export function lastState(line: string): string {
  const trimmed = line.replace(/\r+$/, "");
  return trimmed.slice(trimmed.lastIndexOf("\r") + 1);
}

/** Each line for itself: a colour that one leaves on does not run into the next, which may be another rank's. */
export function pieces(line: string): Piece[] {
  const text = lastState(line);
  if (!text.includes("\u001b")) return text === "" ? [] : [{ text, looks: [] }];
  const reader = new AnsiUp();
  reader.use_classes = true;
  reader.url_allowlist = {};
  const found: Piece[] = [];
  const body = new DOMParser().parseFromString(reader.ansi_to_html(text), "text/html").body;
  for (const node of body.childNodes) {
    const piece = node.textContent ?? "";
    if (piece !== "") found.push({ text: piece, looks: node instanceof HTMLElement ? looksOf(node) : [] });
  }
  return found;
}

/** Cut pieces where `needle` begins and ends, upper or lower case, also across their borders. */
export function marked(line: Piece[], needle: string): Piece[] {
  if (needle === "") return line;
  const hits = spans(line.map((piece) => piece.text).join(""), needle);
  if (hits.length === 0) return line;
  const cut: Piece[] = [];
  let start = 0;
  for (const piece of line) {
    const end = start + piece.text.length;
    let at = start;
    for (const [from, to] of hits) {
      const [left, right] = [Math.max(from, at), Math.min(to, end)];
      if (left >= right) continue;
      if (left > at) cut.push({ ...piece, text: piece.text.slice(at - start, left - start) });
      cut.push({ ...piece, text: piece.text.slice(left - start, right - start), hit: true });
      at = right;
    }
    if (at < end) cut.push({ ...piece, text: piece.text.slice(at - start) });
    start = end;
  }
  return cut;
}

/** [from, to) of each place of `needle`, one behind the other. */
function spans(text: string, needle: string): [number, number][] {
  // A letter whose other case is longer would shift every place behind it: then only the very same text is marked.
  const folded = text.toLowerCase();
  const [where, what] = folded.length === text.length ? [folded, needle.toLowerCase()] : [text, needle];
  const found: [number, number][] = [];
  for (let at = where.indexOf(what); at >= 0; at = where.indexOf(what, at + what.length)) {
    found.push([at, at + what.length]);
  }
  return found;
}

function looksOf(element: HTMLElement): string[] {
  const looks: string[] = [];
  for (const name of element.classList) {
    const match = /^ansi-(.+)-(fg|bg)$/.exec(name);
    if (match?.[1] !== undefined) looks.push(match[2] === "bg" ? `on-${match[1]}` : match[1]);
  }
  const { style } = element;
  if (style.color !== "") looks.push(nearest(style.color));
  if (style.backgroundColor !== "") looks.push(`on-${nearest(style.backgroundColor)}`);
  if (style.fontWeight === "bold") looks.push("bold");
  if (style.opacity !== "") looks.push("faint");
  if (style.fontStyle === "italic") looks.push("italic");
  if (style.textDecoration.includes("underline")) looks.push("underline");
  return looks;
}

/** The named colour with the smallest distance. */
function nearest(rgb: string): string {
  const [red = 0, green = 0, blue = 0] = (rgb.match(/\d+/g) ?? []).map(Number);
  let best = "white";
  let least = Number.POSITIVE_INFINITY;
  for (const [name, [r, g, b]] of Object.entries(NAMED)) {
    const distance = (red - r) ** 2 + (green - g) ** 2 + (blue - b) ** 2;
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}
