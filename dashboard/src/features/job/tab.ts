/** Which part of a job's page is open, and what of its log is shown, as the address keeps it. */
import { type LogView, readLogView } from "@/lib/log-view";

export const TABS = ["overview", "logs", "timeline", "configuration", "checkpoints"] as const;
export type Tab = (typeof TABS)[number];

export interface JobTab extends LogView {
  /** The overview where none is named. */
  tab?: Tab;
}

export function readJobTab(search: Record<string, unknown>): JobTab {
  const tab = TABS.find((name) => name === search.tab);
  if (tab === undefined || tab === "overview") return {};
  return tab === "logs" ? { tab, ...readLogView(search) } : { tab };
}
