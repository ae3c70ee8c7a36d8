/** A short piece of a job's line: its colour, and its dashes. */
import { colourName, dashOf } from "@/lib/palette";

export function Swatch({ slot }: { slot: number }) {
  return (
    <svg width="22" height="8" aria-hidden="true" style={{ verticalAlign: "middle" }}>
      <line
        x1="0"
        y1="4"
        x2="22"
        y2="4"
        stroke={`var(${colourName(slot)})`}
        strokeWidth="2.5"
        strokeDasharray={dashOf(slot).join(" ") || undefined}
      />
    </svg>
  );
}
