/** Where the job's own files come from: sent from here, a commit of a repository, a folder on the nodes, or there are none. */
import { useState } from "react";
import { Select } from "@/components/Select";
import { useField } from "../form/context";
import { every, Frame, TextField } from "../form/Field";
import classes from "../form/Field.module.css";
import { Section } from "../form/Section";
import { valueAt } from "../text/read";
import { Upload } from "./Upload";

type Source = "none" | "upload" | "git" | "path";
const SOURCES = every<Source>({ none: true, upload: true, git: true, path: true });
const WORDS: Record<Source, string> = {
  none: "no files of its own",
  upload: "sent from here",
  git: "a git repository",
  path: "a folder on the nodes",
};

export function CodeFields() {
  const { value, set, remove, problems } = useField(["code"]);
  const written = SOURCES.find((source) => valueAt(value, [source]) !== undefined) ?? "none";
  // Until an archive is sent there is nothing to write: that it is meant to be sent is known here only.
  const [isToSend, setIsToSend] = useState(false);
  const source = written === "none" && isToSend ? "upload" : written;

  function choose(next: string) {
    setIsToSend(next === "upload");
    if (next === "git") set({ git: "", ref: "HEAD" });
    else if (next === "path") set({ path: "" });
    else remove();
  }

  return (
    <Section title="Code">
      <Frame label="The job's files" path={["code"]} problems={problems.filter(({ pointer }) => pointer === "/code")}>
        {(control) => (
          <Select {...control} className={classes.input} value={source} onChange={({ target }) => choose(target.value)}>
            {SOURCES.map((known) => (
              <option key={known} value={known}>
                {WORDS[known]}
              </option>
            ))}
          </Select>
        )}
      </Frame>
      {source === "git" ? (
        <>
          <TextField needed label="Repository" path={["code", "git"]} as="text" hint="https://…" />
          <TextField label="Branch, tag or commit" path={["code", "ref"]} as="text" hint="HEAD" />
        </>
      ) : null}
      {source === "path" ? (
        <TextField needed label="Folder" path={["code", "path"]} as="text" hint="/a/folder" />
      ) : null}
      {source === "upload" ? (
        <Upload sha256={valueAt(value, ["upload"])} keep={(sha256) => set({ upload: sha256 })} problems={problems} />
      ) : null}
    </Section>
  );
}
