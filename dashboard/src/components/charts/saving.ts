/** Charts as files: the picture, the drawn data as a table, and all points of the service. */
import { downloadJobMetrics } from "@/api/generated";
import type { JobOfCharts } from "@/api/series";
import { type Axis, isTime } from "@/lib/axes";
import { csv } from "@/lib/csv";
import type { Line } from "@/lib/lines";
import { MARK_KINDS, MARK_NAMES, type Mark } from "@/lib/marks";
import { dashOf } from "@/lib/palette";
import { saveFile } from "@/lib/save-file";
import { type ChartColours, colourAt } from "./colours";
import { sign } from "./paintMarks";
import { fileName } from "./words";

/** The drawn lines, one row for each place, attempts included; `min` and `max` are those of the bucket. */
export function drawnCsv(metric: string, lines: readonly Line[], axis: Axis): string {
  // Of the others, step and time are there already.
  const counted = axis === "step" || isTime(axis) ? [] : [axis];
  const header = ["job", "name", "metric", "attempt", "step", ...counted, "time", "value", "min", "max", "smoothed"];
  return csv(
    header,
    lines.flatMap(({ job, name, curve, x, smoothed }) =>
      Array.from(curve.step, (step, index) => [
        job,
        name,
        metric,
        curve.attempt,
        step,
        ...counted.map(() => x[index]),
        curve.time[index],
        curve.value[index],
        curve.min[index],
        curve.max[index],
        smoothed === null ? null : smoothed[index],
      ]),
    ),
  );
}

export function saveDrawn(metric: string, lines: readonly Line[], axis: Axis): void {
  const file = new Blob([drawnCsv(metric, lines, axis)], { type: "text/csv" });
  saveFile(`${fileName(...jobNames(lines), metric)}.csv`, file);
}

/** Every point of one series, as the service has it: a file for each job. */
export async function saveEveryPoint(metric: string, jobs: readonly JobOfCharts[]): Promise<void> {
  for (const { id, name } of jobs) {
    const { data } = await downloadJobMetrics({
      path: { reference: id },
      query: { names: [metric], attempts: "all" },
      // A file, and not the text that the description has for it.
      parseAs: "blob",
      throwOnError: true,
    });
    saveFile(`${fileName(name, metric)}-every-point.csv`, data as unknown as Blob);
  }
}

/** Picture on the panel's background, with its name and its legends. */
export function savePicture(
  metric: string,
  lines: readonly Line[],
  marks: readonly Mark[],
  canvas: HTMLCanvasElement,
  colours: ChartColours,
): void {
  const ratio = globalThis.devicePixelRatio || 1;
  const names = legend(lines);
  const kinds = MARK_KINDS.filter((kind) => marks.some((mark) => mark.kind === kind));
  const above = 30 * ratio;
  const row = 18 * ratio;
  const picture = document.createElement("canvas");
  picture.width = canvas.width;
  picture.height = canvas.height + above + (names.length + kinds.length) * row + 8 * ratio;
  const context = picture.getContext("2d");
  if (context === null) return;
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(canvas, 0, above);
  context.fillStyle = colours.ink;
  context.textBaseline = "middle";
  context.font = `600 ${14 * ratio}px system-ui, sans-serif`;
  context.fillText(metric, 12 * ratio, 16 * ratio);
  context.font = `${12 * ratio}px system-ui, sans-serif`;
  names.forEach(({ name, slot }, index) => {
    const y = above + canvas.height + (index + 0.5) * row;
    context.strokeStyle = colourAt(colours, slot);
    context.lineWidth = 2.5 * ratio;
    context.setLineDash(dashOf(slot).map((part) => part * ratio));
    context.beginPath();
    context.moveTo(12 * ratio, y);
    context.lineTo(36 * ratio, y);
    context.stroke();
    context.fillText(name, 44 * ratio, y);
  });
  kinds.forEach((kind, index) => {
    const y = above + canvas.height + (names.length + index + 0.5) * row;
    context.fillStyle = colours.marks[kind];
    sign(context, kind, 24 * ratio, y, 4 * ratio);
    context.fillStyle = colours.ink;
    context.fillText(MARK_NAMES[kind], 44 * ratio, y);
  });
  picture.toBlob((blob) => {
    if (blob !== null) saveFile(`${fileName(...jobNames(lines), metric)}.png`, blob);
  });
}

/** Each drawn job, or group, once. */
export function legend(lines: readonly Line[]): { job: string; name: string; slot: number }[] {
  return [...new Map(lines.map(({ job, name, slot }) => [job, { job, name, slot }])).values()];
}

function jobNames(lines: readonly Line[]): string[] {
  const names = legend(lines).map(({ name }) => name);
  return names.length === 1 ? names : [`${names.length}-jobs`];
}
