/** Title and icon of the browser's tab while a page is open. */
import { useEffect } from "react";
import type { JobState } from "@/api/generated";

const SERVICE = "Lockstep";
/** As `index.html` names it. */
const PLAIN_ICON = "/mark.svg";

/** Ground and shape: the shape tells states apart without their colours. */
const STATE_ICONS: Record<JobState, { ground: string; shape: string }> = {
  queued: { ground: "#8a6100", shape: dots(4, 8, 12) },
  starting: { ground: "#1b5e8c", shape: dots(8) },
  running: { ground: "#1b5e8c", shape: "<path d='M6 4.5v7l5.5-3.5z' fill='#fff'/>" },
  paused: { ground: "#615d55", shape: stroke("M6 4.5v7m4-7v7") },
  succeeded: { ground: "#1f6b3a", shape: stroke("M3.5 8.5l3 3 6-7") },
  failed: { ground: "#a3261f", shape: stroke("M4.5 4.5l7 7m0-7l-7 7") },
  cancelled: { ground: "#615d55", shape: stroke("M4 8h8") },
};
/** Steps of the ring around a running job: more cannot be told apart in 16 pixels. */
const RING_STEPS = 12;

function dots(...places: readonly number[]): string {
  return places.map((x) => `<circle cx='${x}' cy='8' r='1.5' fill='#fff'/>`).join("");
}

/** How far a running job is. */
function ring(fraction: number): string {
  const done = Math.round(fraction * RING_STEPS);
  return `<circle cx='8' cy='8' r='7' fill='none' stroke='#fff' stroke-width='1.6' pathLength='${RING_STEPS}' stroke-dasharray='${done} ${RING_STEPS}' transform='rotate(-90 8 8)'/>`;
}

function stroke(path: string): string {
  return `<path d='${path}' fill='none' stroke='#fff' stroke-width='2.2' stroke-linecap='round'/>`;
}

/** "gpt-small · running 34 % · Lockstep", from its parts. */
export function usePageTitle(...parts: readonly string[]): void {
  const title = [...parts, SERVICE].join(" · ");
  useEffect(() => {
    document.title = title;
    return () => {
      document.title = SERVICE;
    };
  }, [title]);
}

/** Show the state of a job in the icon of the tab, and how far it is (0 to 1) while it runs. */
export function usePageIcon(state: JobState | undefined, fraction?: number | null): void {
  const icon = iconOf(state, fraction ?? 0);
  useEffect(() => {
    setIcon(icon);
    return () => setIcon(PLAIN_ICON);
  }, [icon]);
}

function iconOf(state: JobState | undefined, fraction: number): string {
  if (state === undefined) return PLAIN_ICON;
  const { ground, shape: sign } = STATE_ICONS[state];
  const shape = state === "running" ? ring(fraction) + sign : sign;
  const svg = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3.5' fill='${ground}'/>${shape}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

function setIcon(href: string): void {
  document.querySelector("link[rel='icon']")?.setAttribute("href", href);
}
