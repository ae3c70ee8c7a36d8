/** A few lines with terminal colours, as plain text with the theme's. */
import { type Piece, pieces } from "@/lib/ansi";
import ansi from "./ansi.module.css";

export function AnsiText({ text }: { text: string }) {
  const lines = text.replace(/\n+$/, "").split("\n");
  return lines.map((line, row) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a text's lines have no other identity, and never move
    <span key={row}>
      {pieces(line).map((piece, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: as above
        <AnsiPiece key={at} {...piece} />
      ))}
      {row < lines.length - 1 ? "\n" : ""}
    </span>
  ));
}

/** A styled piece of text. A link of a log opens in another tab, without a referrer. */
export function AnsiPiece({ text, looks, href }: Piece) {
  const names = looks.map((look) => ansi[look]).join(" ") || undefined;
  if (href === undefined) return <span className={names}>{text}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer" className={names}>
      {text}
    </a>
  );
}
