/** A few lines with terminal colours, as plain text with the theme's. */
import { pieces } from "@/lib/ansi";
import ansi from "./ansi.module.css";

export function AnsiText({ text }: { text: string }) {
  const lines = text.replace(/\n+$/, "").split("\n");
  return lines.map((line, row) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a text's lines have no other identity, and never move
    <span key={row}>
      {pieces(line).map(({ text: part, looks }, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: as above
        <span key={at} className={looks.map((look) => ansi[look]).join(" ") || undefined}>
          {part}
        </span>
      ))}
      {row < lines.length - 1 ? "\n" : ""}
    </span>
  ));
}
