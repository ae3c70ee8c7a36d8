/** Choosing a folder or an archive, and what becomes of it, in words. */
import { useMutation } from "@tanstack/react-query";
import { type ChangeEvent, useRef, useState } from "react";
import { Failure } from "@/api/client";
import type { FieldProblem, UploadView } from "@/api/generated";
import { Button } from "@/components/Button";
import { bytes, number } from "@/lib/format";
import { NotSent } from "./choose";
import { sendArchive, sendFolder } from "./send";
import classes from "./Upload.module.css";

interface Props {
  /** Of the archive that the text names. */
  sha256: unknown;
  keep: (sha256: string) => void;
  problems: readonly FieldProblem[];
}

export function Upload({ sha256, keep, problems }: Props) {
  const [words, setWords] = useState("");
  const folder = useRef<HTMLInputElement>(null);
  const archive = useRef<HTMLInputElement>(null);
  const sending = useMutation({
    mutationFn: (send: () => Promise<UploadView>) => send(),
    onSuccess: ({ sha256: digest }) => keep(digest),
  });

  function start(event: ChangeEvent<HTMLInputElement>, send: (files: File[]) => Promise<UploadView>) {
    const files = [...(event.target.files ?? [])];
    // The same folder chosen again is a change too: it may have been edited.
    event.target.value = "";
    if (files.length > 0) sending.mutate(() => send(files));
  }

  return (
    <div className={classes.upload} data-pointer="/code/upload">
      <div className={classes.choices}>
        <Button disabled={sending.isPending} onClick={() => folder.current?.click()}>
          Choose a folder
        </Button>
        <Button disabled={sending.isPending} onClick={() => archive.current?.click()}>
          Choose a .tar.gz
        </Button>
        <input
          ref={(input) => {
            folder.current = input;
            input?.setAttribute("webkitdirectory", "");
          }}
          hidden
          type="file"
          aria-label="Folder with the job's code"
          onChange={(event) => start(event, (files) => sendFolder(files, setWords))}
        />
        <input
          ref={archive}
          hidden
          type="file"
          accept=".gz,.tgz,application/gzip"
          aria-label="Archive with the job's code"
          onChange={(event) => start(event, ([file]) => sendArchive(file as File, setWords))}
        />
      </div>
      <p role="status" className={classes.words}>
        {sending.isPending ? words : said(sending.data, sha256)}
      </p>
      {sending.error === null ? null : (
        <p role="alert" className={classes.failed}>
          {sending.error.message} {nextStep(sending.error)}
        </p>
      )}
      {problems
        .filter(({ pointer }) => pointer === "/code/upload")
        .map(({ message, next_step }) => (
          <p key={message} className={classes.failed}>
            {message}
            {next_step ? `: ${next_step}` : ""}
          </p>
        ))}
    </div>
  );
}

function said(view: UploadView | undefined, sha256: unknown): string {
  if (typeof sha256 !== "string" || sha256 === "") {
    return "Left out are .git, caches, environments, and what .lockstepignore names. A file that begins with #! may be run.";
  }
  if (view === undefined || view.sha256 !== sha256) return `Archive ${sha256.slice(0, 12)}…`;
  const files = `${number(view.files)} file${view.files === 1 ? "" : "s"}`;
  const how = view.created ? "sent" : "was there already";
  return `Archive ${sha256.slice(0, 12)}…: ${files}, ${bytes(view.bytes)} compressed, ${how}`;
}

function nextStep(error: Error): string {
  if (error instanceof NotSent) return error.nextStep;
  return error instanceof Failure ? (error.problem.next_step ?? "") : "";
}
