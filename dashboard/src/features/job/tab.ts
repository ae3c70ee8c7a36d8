/** Which part of a job's page is open, what of its log is shown, how its curves, as the address keeps it. */
import { type LogView, readLogView } from "@/lib/log-view";
import { type Look, readLook } from "@/lib/look";

export const TABS = ["overview", "logs", "timeline", "configuration", "checkpoints", "files"] as const;
export type Tab = (typeof TABS)[number];

export interface JobTab extends LogView, Look {
  /** The overview where none is named. */
  tab?: Tab;
  /** The configuration with every default; as submitted where it is not there. */
  spec?: "whole";
  /** Filter of the files, as typed. */
  match?: string;
}

export function readJobTab(search: Record<string, unknown>): JobTab {
  const tab = TABS.find((name) => name === search.tab);
  // The look of the charts stays in the address of every part: they have the same zoom after a visit elsewhere.
  const look = readLook(search);
  if (tab === undefined || tab === "overview") return look;
  if (tab === "logs") return { tab, ...readLogView(search), ...look };
  const match = typeof search.match === "string" || typeof search.match === "number" ? String(search.match) : "";
  if (tab === "files") return { tab, ...(match === "" ? {} : { match }), ...look };
  return tab === "configuration" && search.spec === "whole" ? { tab, spec: "whole", ...look } : { tab, ...look };
}
