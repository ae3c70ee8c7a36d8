/** What the service refuses, each with its line, in its own words. A click goes to the line. */
import type { FieldProblem } from "@/api/generated";
import { Button } from "@/components/Button";
import { dotted, placeOf } from "../text/pointer";
import type { SpecText } from "../text/read";
import classes from "./Problems.module.css";

interface Props {
  problems: readonly FieldProblem[];
  spec: SpecText;
  reveal: (at: number) => void;
}

export function Problems({ problems, spec, reveal }: Props) {
  if (problems.length === 0) return null;
  return (
    <ul className={classes.problems} aria-label="What the service refuses">
      {problems.map(({ pointer, message, next_step }) => {
        const { line, from } = placeOf(spec, pointer);
        return (
          <li key={pointer + message}>
            <Button variant="link" isDanger onClick={() => reveal(from)} aria-label={`Go to line ${line}`}>
              line {line}
            </Button>
            <span>
              {pointer === "" ? null : <code>{dotted(pointer)}</code>} {message}
              {next_step ? <span className={classes.next}> {next_step}</span> : null}
            </span>
          </li>
        );
      })}
    </ul>
  );
}
