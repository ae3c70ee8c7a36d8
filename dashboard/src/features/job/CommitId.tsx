/** A commit of a git repository: as much of it as people say, and all of it to copy. */
import { CopyButton } from "@/components/CopyButton";
import classes from "./CommitId.module.css";

export function CommitId({ commit }: { commit: string }) {
  return (
    <span className={classes.commit}>
      <code title={commit}>{commit.slice(0, 12)}</code>
      <CopyButton text={commit} what="commit" />
    </span>
  );
}
