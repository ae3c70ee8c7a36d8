/** The sign of a mark, beside its words. */
import type { MarkKind } from "@/lib/marks";
import { SHAPES, TONES } from "./markShapes";

export function MarkIcon({ kind }: { kind: MarkKind }) {
  return (
    <svg width="10" height="10" viewBox="-1.1 -1.1 2.2 2.2" aria-hidden="true" style={{ flex: "none" }}>
      <path
        fill={`var(${TONES[kind]})`}
        d={SHAPES[kind]
          .map((polygon) => `M${polygon.map(([x, y]) => `${x.toFixed(3)},${y.toFixed(3)}`).join("L")}Z`)
          .join("")}
      />
    </svg>
  );
}
