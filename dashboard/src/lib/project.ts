/** Project of a list, as its address keeps it: a name, or a pattern of the service (`*` stands for any text). */
import { boundedText } from "./listed";

/** The service's own bound: a name of 63 characters between two stars. */
const PROJECT_CHARS_MAX = 65;

export function readProject(search: Record<string, unknown>): { project?: string } {
  const project = boundedText(search.project, PROJECT_CHARS_MAX);
  return project === undefined ? {} : { project };
}
