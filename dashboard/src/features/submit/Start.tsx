/** Where the text came from: the templates to start from, or the job that is cloned; and the way back from a replacement. */
import { Button } from "@/components/Button";
import classes from "./Start.module.css";
import type { Template } from "./templates";
import type { Draft } from "./useDraft";
import type { Original } from "./useSubmission";

interface Props {
  draft: Draft;
  initial: string;
  templates: readonly Template[];
  original: Original | null;
  /** `train.init_from` of the text. */
  source: unknown;
}

export function Start({ draft, initial, templates, original, source }: Props) {
  const { text, replaced, isKept } = draft;
  return (
    <div className={classes.start}>
      {original === null ? (
        <div className={classes.templates}>
          <span id="templates">Start from</span>
          <ul aria-labelledby="templates">
            {templates.map(({ name, text: template }) => (
              <li key={name}>
                <Button size="xs" aria-pressed={text === template} onClick={() => draft.replace(template, name)}>
                  {name}
                </Button>
              </li>
            ))}
          </ul>
        </div>
      ) : (
        <p className={classes.says}>{keeps(original, source)}</p>
      )}
      {isKept ? (
        <p className={classes.says} role="status">
          This is your text from before.{" "}
          <Button variant="link" onClick={() => draft.replace(initial, "the first text")}>
            Start over
          </Button>
        </p>
      ) : null}
      {replaced !== null && replaced.text !== text ? (
        <p className={classes.says} role="status">
          {replaced.by} replaced what was here.{" "}
          <Button variant="link" onClick={draft.putBack}>
            Put it back
          </Button>
        </p>
      ) : null}
    </div>
  );
}

/** What a clone keeps of the other job that its text does not show. */
function keeps({ job }: Original, source: unknown): string {
  const code = job.spec.code as Record<string, unknown> | null | undefined;
  const words: string[] = [];
  if (code?.upload !== undefined) words.push("It runs the same uploaded code.");
  if (code?.git !== undefined) words.push("Unless code changes here, it runs the commit that the other job ran.");
  if (typeof source === "string") words.push(`Its weights start from ${source}; steps and optimizer begin anew.`);
  return words.join(" ");
}
