/** The width of the log beside a page: what the person set it to, within limits, kept by the browser. */

export const WIDTH_MIN = 320;
export const WIDTH_MAX = 800;
const USUAL = 460;
const KEY = "lockstep.job.log.width";

export function clampedWidth(pixels: number): number {
  return Number.isFinite(pixels) ? Math.round(Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, pixels))) : USUAL;
}

export function storedWidth(): number {
  const text = localStorage.getItem(KEY);
  return text === null ? USUAL : clampedWidth(Number.parseFloat(text));
}

export function storeWidth(pixels: number): void {
  localStorage.setItem(KEY, String(clampedWidth(pixels)));
}

const STEP = 20;

/** The width after a key on the edge of the drawer; null for a key that does not change it. It grows to the left. */
export function widthAfter(key: string, width: number): number | null {
  switch (key) {
    case "ArrowLeft":
      return clampedWidth(width + STEP);
    case "ArrowRight":
      return clampedWidth(width - STEP);
    case "Home":
      return WIDTH_MIN;
    case "End":
      return WIDTH_MAX;
    default:
      return null;
  }
}
