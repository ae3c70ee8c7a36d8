/** The files of one checkpoint, each to be downloaded; what is too large for a browser's memory is left to the command. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { type CheckpointFile, getJobCheckpoint, getJobCheckpointFile } from "@/api/generated";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { bytes } from "@/lib/format";
import { saveFile } from "@/lib/save-file";
import classes from "./CheckpointsTab.module.css";

/** A download that needs the token goes through the page's memory first. */
const BROWSER_BYTES_MAX = 1 << 30;

interface Which {
  jobId: string;
  step: number;
  attempt: number;
}

export function CheckpointFiles({ jobId, step, attempt, fetches }: Which & { fetches: boolean }) {
  const { data, error } = useQuery({
    queryKey: ["job", jobId, "checkpoints", "files", attempt, step],
    queryFn: async ({ signal }) => {
      const path = { reference: jobId, which: String(step) };
      return (await getJobCheckpoint({ path, query: { attempt }, signal, throwOnError: true })).data;
    },
  });
  if (data === undefined) return error === null ? <div aria-busy="true" /> : <Failed error={error} />;
  return (
    <>
      <table className={classes.table}>
        <thead>
          <tr>
            <th scope="col">File</th>
            <th scope="col">Size</th>
            <th scope="col">SHA-256</th>
            <th scope="col">
              <span className={classes.unseen}>Download</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {data.files.map((file) => (
            <tr key={file.name}>
              <th scope="row">{file.name}</th>
              <td>{bytes(file.bytes)}</td>
              <td>
                <code title={file.sha256}>{file.sha256.slice(0, 12)}</code>
              </td>
              <td>{fetches ? <Download file={file} jobId={jobId} step={step} attempt={attempt} /> : null}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className={classes.where}>
        In the store: <code>{data.location}</code>
      </p>
    </>
  );
}

function Download({ file, jobId, step, attempt }: Which & { file: CheckpointFile }) {
  const download = useMutation({
    mutationFn: async () => {
      const { data } = await getJobCheckpointFile({
        path: { reference: jobId, which: String(step), name: file.name },
        query: { attempt },
        parseAs: "blob",
        throwOnError: true,
      });
      return data;
    },
    onSuccess: (content) => saveFile(file.name, content),
  });
  if (file.bytes > BROWSER_BYTES_MAX) return <span>with the command</span>;
  return (
    <>
      <Button
        variant="link"
        aria-label={`Download ${file.name}`}
        disabled={download.isPending}
        onClick={() => download.mutate()}
      >
        {download.isPending ? "downloading…" : "download"}
      </Button>
      {download.error === null ? null : <Failed error={download.error} />}
    </>
  );
}
