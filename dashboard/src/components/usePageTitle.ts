/** Title and icon of the browser's tab while a page is open. */
import { useEffect } from "react";
import type { JobState } from "@/api/generated";

const SERVICE = "Lockstep";
/** As `index.html` names it. */
const PLAIN_ICON = "/mark.svg";

/** Ground and shape: the shape tells states apart without their colours. */
const STATE_ICONS: Partial<Record<JobState, { ground: string; shape: string }>> = {
  running: { ground: "#1b5e8c", shape: "<path d='M5.5 3.5v9l7-4.5z' fill='#fff'/>" },
  succeeded: { ground: "#1f6b3a", shape: stroke("M3.5 8.5l3 3 6-7") },
  failed: { ground: "#a3261f", shape: stroke("M4.5 4.5l7 7m0-7l-7 7") },
};

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

/** Show the state of a job in the icon of the tab; states without an icon keep the plain one. */
export function usePageIcon(state: JobState | undefined): void {
  const icon = iconOf(state);
  useEffect(() => {
    setIcon(icon);
    return () => setIcon(PLAIN_ICON);
  }, [icon]);
}

function iconOf(state: JobState | undefined): string {
  const found = state === undefined ? undefined : STATE_ICONS[state];
  if (found === undefined) return PLAIN_ICON;
  const { ground, shape } = found;
  const svg = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3.5' fill='${ground}'/>${shape}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

function setIcon(href: string): void {
  document.querySelector("link[rel='icon']")?.setAttribute("href", href);
}
