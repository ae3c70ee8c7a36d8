/** The main series of a job in a few pixels. What it draws, and what it may not hide, is in `sparkline.ts`. */
import { memo } from "react";
import type { SeriesView } from "@/api/generated";
import { number } from "@/lib/format";
import classes from "./Sparkline.module.css";
import { type Box, drawing, type Mark } from "./sparkline";

const BOX: Box = { width: 72, height: 22, margin: 2 };
const KINDS: Record<Mark["kind"], string> = { nan: "NaN", infinity: "Infinity", "-infinity": "-Infinity" };

export const Sparkline = memo(function Sparkline({ series }: { series: SeriesView }) {
  const { line, bars, marks, range } = drawing(series, BOX);
  const odd = [...new Set(marks.map((mark) => KINDS[mark.kind]))].join(" and ");
  const label = [
    range === null
      ? `${series.name}: no finite value`
      : `${series.name} from ${number(range.low)} to ${number(range.high)}`,
    odd === "" ? null : `with ${odd}`,
  ];
  return (
    <svg
      className={classes.spark}
      viewBox={`0 0 ${BOX.width} ${BOX.height}`}
      width={BOX.width}
      height={BOX.height}
      role="img"
      aria-label={label.filter(Boolean).join(", ")}
    >
      <path className={classes.bars} d={bars} />
      <path className={classes.line} d={line} />
      {marks.map((mark) => (
        <path key={`${mark.kind}${mark.x}`} className={classes.mark} d={shape(mark)} />
      ))}
    </svg>
  );
});

/** NaN: a cross on the ground. Infinities: an arrow at the edge that they leave through. */
function shape({ kind, x }: Mark): string {
  if (kind === "nan") return `M${x - 2.5} ${BOX.height - 5.5}l5 5m0 -5l-5 5`;
  return kind === "infinity" ? `M${x - 3} 4l3 -3.5l3 3.5` : `M${x - 3} ${BOX.height - 4}l3 3.5l3 -3.5`;
}
