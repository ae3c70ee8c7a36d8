/**
 * A log line with terminal escapes as pieces of plain text with a look, and where a searched word stands in it.
 *
 * Reads what ECMA-48 and xterm call SGR (colours and styles) and OSC 8 (hyperlinks). Every other sequence is left out,
 * and text never is: what is no complete sequence stays in the line. Nothing of a log is ever put into the page as HTML.
 * Colours are names that the theme fills. Those beyond the sixteen named ones become the nearest of them: a log's own
 * shade could not be read on both grounds.
 */

export interface Piece {
  text: string;
  /** Names of looks: `red`, `bright-red`, `on-blue`, `bold`, `faint`, `italic`, `underline`, `strike`, `inverse`. */
  looks: string[];
  /** Where the text links to: an address of http or https. */
  href?: string;
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
  const pen = new Pen();
  const found: Piece[] = [];
  let from = 0;
  const take = (to: number) => {
    if (to > from) found.push({ text: text.slice(from, to), ...pen.style() });
  };
  SEQUENCE.lastIndex = 0;
  for (let match = SEQUENCE.exec(text); match !== null; match = SEQUENCE.exec(text)) {
    take(match.index);
    from = SEQUENCE.lastIndex;
    const { sgr, link } = match.groups ?? {};
    if (sgr !== undefined) pen.change(sgr);
    else if (link !== undefined) pen.href = safeLink(link);
  }
  take(text.length);
  return found;
}

/**
 * One escape sequence: SGR, another control sequence, a hyperlink, another string up to its end, a charset, or a pair.
 * The last alternative is a lone escape, of which only the invisible character itself is dropped.
 */
const SEQUENCE = new RegExp(
  [
    "\\u001b\\[(?<sgr>[\\d;:]*)m",
    "\\u001b\\[[\\u0030-\\u003f]*[\\u0020-\\u002f]*[\\u0040-\\u007e]",
    "\\u001b\\]8;[^;\\u0007\\u001b]*;(?<link>[^\\u0007\\u001b]*)(?:\\u0007|\\u001b\\\\)",
    "\\u001b[\\]PX^_][^\\u0007\\u001b]*(?:\\u0007|\\u001b\\\\)",
    "\\u001b[()*+][\\u0030-\\u007e]",
    "\\u001b[\\u0030-\\u004f\\u0051-\\u0057\\u0059\\u005a\\\\\\u0060-\\u007e]",
    "\\u001b",
  ].join("|"),
  "g",
);

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const;
/** SGR codes that switch a style on, and those that switch it off. */
const STYLES_ON: Record<number, string> = {
  1: "bold",
  2: "faint",
  3: "italic",
  4: "underline",
  9: "strike",
  21: "underline",
};
const STYLES_OFF: Record<number, readonly string[]> = {
  22: ["bold", "faint"],
  23: ["italic"],
  24: ["underline"],
  29: ["strike"],
};
const STYLES = ["bold", "faint", "italic", "underline", "strike"] as const;

/** What the text that comes next looks like. */
class Pen {
  href: string | undefined;
  private colour: string | null = null;
  private ground: string | null = null;
  private isInverse = false;
  private readonly styles = new Set<string>();

  style(): { looks: string[]; href?: string } {
    // Swapped colours of the theme may not be readable on each other, so an inverse text has the page's own, swapped.
    const colours = this.isInverse ? ["inverse"] : [this.colour, this.ground && `on-${this.ground}`];
    const looks = [...colours, ...STYLES.filter((style) => this.styles.has(style))].filter((look) => look !== null);
    return this.href === undefined ? { looks } : { looks, href: this.href };
  }

  /** `1;31`, `38;5;196`, `38:2::90:90:250`: the parameters of one SGR sequence. */
  change(parameters: string): void {
    const parts = parameters.split(";");
    for (let at = 0; at < parts.length; at += 1) {
      const [code = 0, ...inner] = (parts[at] as string).split(":").map(Number);
      if (code === 38 || code === 48 || code === 58) {
        const rest = inner.length > 0 ? inner : parts.slice(at + 1, at + 5).map(Number);
        const { colour, length } = extended(rest);
        if (inner.length === 0) at += length;
        if (code === 38) this.colour = colour;
        else if (code === 48) this.ground = colour;
      } else this.one(code, inner[0]);
    }
  }

  private one(code: number, inner: number | undefined): void {
    const style = STYLES_ON[code];
    if (code === 0) this.reset();
    else if (code === 4 && inner === 0) this.styles.delete("underline");
    else if (style !== undefined) this.styles.add(style);
    else if (code in STYLES_OFF) for (const off of STYLES_OFF[code] ?? []) this.styles.delete(off);
    else if (code === 7 || code === 27) this.isInverse = code === 7;
    else if (code === 39) this.colour = null;
    else if (code === 49) this.ground = null;
    else if (code >= 30 && code <= 37) this.colour = named(code - 30);
    else if (code >= 40 && code <= 47) this.ground = named(code - 40);
    else if (code >= 90 && code <= 97) this.colour = named(code - 82);
    else if (code >= 100 && code <= 107) this.ground = named(code - 92);
  }

  private reset(): void {
    this.colour = null;
    this.ground = null;
    this.isInverse = false;
    this.styles.clear();
  }
}

/** The name of one of the sixteen colours. */
function named(index: number): string {
  return index < 8 ? (COLOURS[index] as string) : `bright-${COLOURS[index - 8]}`;
}

/** The colour behind 38 or 48, and how many parameters it took: `5;n`, `2;r;g;b`, or `2::r:g:b`. */
function extended(rest: readonly number[]): { colour: string | null; length: number } {
  if (rest[0] === 5) return { colour: indexed(rest[1] ?? 0), length: 2 };
  if (rest[0] !== 2) return { colour: null, length: 1 };
  // With colons there may be the number of a colour space before the three.
  const [red = 0, green = 0, blue = 0] = rest.length >= 5 ? rest.slice(2) : rest.slice(1);
  return { colour: nearest(red, green, blue), length: 4 };
}

/** One of the 256 colours: sixteen named ones, a cube of six levels, and greys. */
function indexed(index: number): string {
  if (index < 16) return named(index);
  if (index >= 232) {
    const grey = 8 + 10 * (index - 232);
    return nearest(grey, grey, grey);
  }
  const level = (part: number) => (part === 0 ? 0 : 55 + 40 * part);
  const cube = index - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

function safeLink(address: string): string | undefined {
  if (!URL.canParse(address)) return undefined;
  return /^https?:$/.test(new URL(address).protocol) ? address : undefined;
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

/** The named colour with the smallest distance. */
function nearest(red: number, green: number, blue: number): string {
  let best = "white";
  let least = Number.POSITIVE_INFINITY;
  for (const [name, [r, g, b]] of Object.entries(NAMED)) {
    const distance = (red - r) ** 2 + (green - g) ** 2 + (blue - b) ** 2;
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}
