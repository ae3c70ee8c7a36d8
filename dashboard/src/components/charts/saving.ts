/** Charts as files: the picture, what is drawn as a table, and every point the service has. */
import { downloadJobMetrics } from "@/api/generated";
import type { JobOfCharts } from "@/api/series";
import { csv } from "@/lib/csv";
import type { Line } from "@/lib/lines";
import { COLOURS, dashOf } from "@/lib/palette";
import type { ChartColours } from "./colours";
import { fileName } from "./words";

/** The drawn lines, one row for each place, attempts included; `min` and `max` are those of the bucket. */
export function drawnCsv(metric: string, lines: readonly Line[]): string {
  const header = ["job", "name", "metric", "attempt", "step", "time", "value", "min", "max", "smoothed"];
  return csv(
    header,
    lines.flatMap(({ job, name, curve, smoothed }) =>
      Array.from(curve.step, (step, index) => [
        job,
        name,
        metric,
        curve.attempt,
        step,
        curve.time[index],
        curve.value[index],
        curve.min[index],
        curve.max[index],
        smoothed === null ? null : smoothed[index],
      ]),
    ),
  );
}

export function saveDrawn(metric: string, lines: readonly Line[]): void {
  save(new Blob([drawnCsv(metric, lines)], { type: "text/csv" }), `${fileName(...jobNames(lines), metric)}.csv`);
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
    save(data as unknown as Blob, `${fileName(name, metric)}-every-point.csv`);
  }
}

/** The picture on the panel's ground, with its name and, of several jobs, what each line is. */
export function savePicture(
  metric: string,
  lines: readonly Line[],
  canvas: HTMLCanvasElement,
  colours: ChartColours,
): void {
  const ratio = globalThis.devicePixelRatio || 1;
  const names = legend(lines);
  const above = 30 * ratio;
  const row = 18 * ratio;
  const picture = document.createElement("canvas");
  picture.width = canvas.width;
  picture.height = canvas.height + above + names.length * row + 8 * ratio;
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
    context.strokeStyle = colours.curves[slot % COLOURS] as string;
    context.lineWidth = 2.5 * ratio;
    context.setLineDash(dashOf(slot).map((part) => part * ratio));
    context.beginPath();
    context.moveTo(12 * ratio, y);
    context.lineTo(36 * ratio, y);
    context.stroke();
    context.fillText(name, 44 * ratio, y);
  });
  picture.toBlob((blob) => {
    if (blob !== null) save(blob, `${fileName(...jobNames(lines), metric)}.png`);
  });
}

function legend(lines: readonly Line[]): { name: string; slot: number }[] {
  return [...new Map(lines.map(({ job, name, slot }) => [job, { name, slot }])).values()];
}

function jobNames(lines: readonly Line[]): string[] {
  const names = legend(lines).map(({ name }) => name);
  return names.length === 1 ? names : [`${names.length}-jobs`];
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser has taken the address by the next turn; kept, it would hold the file in memory.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
