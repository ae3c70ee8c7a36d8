/** Metadata and figures of series, as the service answers them. */
import type { SeriesSummary } from "./generated";

/** Metadata and figures of one series; its last value is a number, NaN and the infinities included. */
export type Summary = SeriesSummary & { last: number };

/** By name, in the order of the service. */
export function summariesOf(series: readonly SeriesSummary[]): ReadonlyMap<string, Summary> {
  return new Map(series.map((each) => [each.name, { ...each, last: Number(each.last) }]));
}
