/** Specs to start from. Each is a file of its own; a test of the service checks that it would be accepted. */

import type { TemplateName } from "@/lib/template-names";
import digits from "./templates/digits.yaml?raw";
import gpt from "./templates/gpt.yaml?raw";
import torchrun from "./templates/torchrun.yaml?raw";
import { inProject } from "./text/edit";

export interface Template {
  name: TemplateName;
  text: string;
}

export const TEMPLATES: readonly Template[] = [
  { name: "GPT on text", text: gpt },
  { name: "Digits", text: digits },
  { name: "torchrun script", text: torchrun },
];

/** The templates for a job in this project; without one, the service chooses it. */
export function templatesIn(project: string | null): readonly Template[] {
  return project === null ? TEMPLATES : TEMPLATES.map(({ name, text }) => ({ name, text: inProject(text, project) }));
}
