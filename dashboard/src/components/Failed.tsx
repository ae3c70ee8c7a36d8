/** Error panel with the service's own message: problem, reason and next step. */
import { Failure } from "@/api/client";
import { Button } from "./Button";
import classes from "./Failed.module.css";

export function Failed({ error, retry }: { error: unknown; retry?: () => void }) {
  const problem = error instanceof Failure ? error.problem : null;
  return (
    <div className={classes.failed} role="alert">
      <strong>{problem?.title ?? "This page failed"}</strong>
      <p>{error instanceof Error ? error.message : String(error)}</p>
      {problem?.next_step ? <p className={classes.next}>{problem.next_step}</p> : null}
      {retry ? (
        <Button size="xs" className={classes.retry} onClick={retry}>
          Retry
        </Button>
      ) : null}
    </div>
  );
}
