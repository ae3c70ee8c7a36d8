/** In the place of the drawing itself, for which a canvas is needed: what it is given can be looked at, and a click zooms. */
export function Plot({
  label,
  lines,
  onZoom,
}: {
  label: string;
  lines: { job: string }[];
  onZoom: (zoom: unknown) => void;
}) {
  return (
    <button type="button" aria-label={label} onClick={() => onZoom({ from: 100, to: 199.5 })}>
      {lines.map((line) => line.job).join(" ")}
    </button>
  );
}
