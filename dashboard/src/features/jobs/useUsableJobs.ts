/** The jobs of a view, with the values of its columns. */
import { useState } from "react";
import { type RefusedPart, refusedParts } from "./refusals";
import { askedOf } from "./table/columns";
import { useJobs } from "./useJobs";
import type { JobsView } from "./view";

/**
 * A chosen column that no job has is left out, and not the whole list: a default may name a metric that no job has yet.
 *
 * @param chosen - Columns; null for the usual ones, whose values each job has by itself.
 */
export function useUsableJobs(view: JobsView, chosen: readonly string[] | null, isEnabled: boolean) {
  const [unknown, setUnknown] = useState<readonly RefusedPart[]>([]);
  const isUnknown = (id: string) => unknown.some(({ value }) => value === id);
  const asked = askedOf(chosen ?? []).filter((id) => !isUnknown(id));
  const query = useJobs(view, asked, isEnabled);
  const refused = refusedParts(query.error);
  const more = refused.filter(({ parameter, value }) => parameter === "columns" && !isUnknown(value));
  if (more.length > 0) setUnknown([...unknown, ...more]);
  const unusable = [
    ...refused.filter(({ parameter }) => parameter !== "columns"),
    ...unknown.filter(({ value }) => chosen?.includes(value)),
  ];
  return { ...query, asked, unusable };
}
