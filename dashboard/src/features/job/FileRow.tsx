/** One file of the list, with its preview below it once it is opened. */
import { useMutation } from "@tanstack/react-query";
import { memo } from "react";
import { getJobFile, type JobView, type KeptFileView } from "@/api/generated";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Failed } from "@/components/Failed";
import { bytes, moment } from "@/lib/format";
import { printable } from "@/lib/printable";
import { saveFile } from "@/lib/save-file";
import { DeleteFiles } from "./DeleteFiles";
import { FilePreview } from "./FilePreview";
import classes from "./FilesTab.module.css";
import { shortId } from "./JobHeader";
import { DOWNLOAD_BYTES_MAX, exactly, quoted } from "./kept-files";

interface FileRowProps {
  job: JobView;
  file: KeptFileView;
  /** The caller may read its contents. */
  fetches: boolean;
  deletes: boolean;
  isOpen: boolean;
  onToggle: (path: string) => void;
}

/** Rendered again only if its file or job changes: there may be thousands. */
export const FileRow = memo(function FileRow({ job, file, fetches, deletes, isOpen, onToggle }: FileRowProps) {
  const name = printable(file.path);
  const isLarge = file.bytes > DOWNLOAD_BYTES_MAX;
  return (
    <>
      <tr>
        <th scope="row" className={classes.path}>
          {fetches ? (
            <Button variant="link" aria-expanded={isOpen} onClick={() => onToggle(file.path)}>
              {name}
            </Button>
          ) : (
            name
          )}
        </th>
        <td>{bytes(file.bytes)}</td>
        <td className={classes.wide}>{moment(file.modified_at)}</td>
        <td className={classes.wide}>{file.attempt}</td>
        <td>{!fetches ? null : isLarge ? "by command" : <Download jobId={job.id} file={file} name={name} />}</td>
      </tr>
      {isOpen && fetches ? (
        <tr>
          <td colSpan={5} className={classes.opened}>
            {isLarge ? <Command command={`lockstep files get ${shortId(job.id)} ${quoted(file.path)}`} /> : null}
            <FilePreview jobId={job.id} file={file} name={name} />
            <p className={classes.facts}>
              Modified {moment(file.modified_at)} by attempt {file.attempt}
            </p>
            <p className={classes.facts}>
              SHA-256 <code>{file.sha256}</code>
              <CopyButton text={file.sha256} what={`digest of ${name}`} />
            </p>
            {deletes ? (
              <div className={classes.remove}>
                <DeleteFiles
                  job={job}
                  pattern={exactly(file.path)}
                  button="Delete"
                  what={`${name}, ${bytes(file.bytes)}`}
                />
              </div>
            ) : null}
          </td>
        </tr>
      ) : null}
    </>
  );
});

function Download({ jobId, file, name }: { jobId: string; file: KeptFileView; name: string }) {
  const download = useMutation({
    mutationFn: async () => {
      const path = { reference: jobId, path: file.path };
      return (await getJobFile({ path, parseAs: "blob", throwOnError: true })).data;
    },
    onSuccess: (content) => saveFile(name.slice(name.lastIndexOf("/") + 1), content as Blob),
  });
  return (
    <>
      <Button
        variant="link"
        aria-label={`Download ${name}`}
        disabled={download.isPending}
        onClick={() => download.mutate()}
      >
        {download.isPending ? "downloading…" : "download"}
      </Button>
      {download.error === null ? null : <Failed error={download.error} />}
    </>
  );
}

function Command({ command }: { command: string }) {
  return (
    <p className={classes.facts}>
      Too large for a browser; fetch it by <code>{command}</code>
      <CopyButton text={command} what="command" />
    </p>
  );
}
