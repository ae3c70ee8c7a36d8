/** A job's time limit in words: "1 d, default of the service". Pure; the tests are beside it. */
import type { TimeLimit } from "@/api/generated";
import { span } from "./format";

export function timeLimitWords({ seconds, source }: TimeLimit): string {
  const isDefault = source === "project" || source === "service";
  return isDefault ? `${span(seconds)}, default of the ${source}` : span(seconds);
}
