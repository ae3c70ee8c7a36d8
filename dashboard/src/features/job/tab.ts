/** Which part of a job's page is open, what of its log is shown, how its curves, as the address keeps it. */
import { asText } from "@/lib/listed";
import { type LogView, readLogView } from "@/lib/log-view";
import { type Look, readLook } from "@/lib/look";

export const TABS = ["overview", "logs", "timeline", "configuration", "checkpoints", "files"] as const;
export type Tab = (typeof TABS)[number];

export interface JobTab extends LogView, Look {
  /** The overview where none is named. */
  tab?: Tab;
  /** The configuration with every default; as submitted where it is not there. */
  spec?: "whole";
  /** Name or id of the job whose spec the configuration is compared with. */
  against?: string;
  /** Filter of the files, as typed. */
  match?: string;
}

export function readJobTab(search: Record<string, unknown>): JobTab {
  const tab = TABS.find((name) => name === search.tab);
  // The look of the charts stays in the address of every part: they have the same zoom after a visit elsewhere.
  const look = readLook(search);
  if (tab === undefined || tab === "overview") return look;
  if (tab === "logs") return { tab, ...readLogView(search), ...look };
  const match = asText(search.match) ?? "";
  if (tab === "files") return { tab, ...(match === "" ? {} : { match }), ...look };
  if (tab !== "configuration") return { tab, ...look };
  const against = asText(search.against) ?? "";
  return {
    tab,
    ...(search.spec === "whole" ? { spec: "whole" } : {}),
    ...(against === "" ? {} : { against }),
    ...look,
  };
}
