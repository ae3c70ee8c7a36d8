/** Files that a job keeps: a list with a filter, previews, downloads and deletion. */
import { useCallback, useState } from "react";
import type { JobView, KeptFilesPage } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Button } from "@/components/Button";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { Panel } from "@/components/Panel";
import { useNow } from "@/components/useNow";
import { hasEnded } from "@/lib/ended";
import { ago, bytes, number } from "@/lib/format";
import { counted } from "@/lib/resources";
import { DeleteFiles } from "./DeleteFiles";
import { FileFilter } from "./FileFilter";
import { FileRow } from "./FileRow";
import classes from "./FilesTab.module.css";
import { useFiles } from "./job-queries";
import { canDeleteFiles, FILES_MAX, patternOf, ROWS } from "./kept-files";

interface FilesTabProps {
  job: JobView;
  /** As typed. */
  match: string | undefined;
  onMatch: (match: string | undefined) => void;
}

export function FilesTab({ job, match, onMatch }: FilesTabProps) {
  const [rows, setRows] = useState(ROWS);
  const pattern = match === undefined ? undefined : patternOf(match);
  const { data: page, error, refetch, isPlaceholderData: isFormer } = useFiles(job, pattern, rows);
  if (page !== undefined && page.total === 0 && match === undefined && !isFormer) return <NoFiles job={job} />;
  return (
    <Panel className={classes.panel} title="Files">
      <div className={classes.tools}>
        <FileFilter value={match ?? ""} onFilter={(typed) => onMatch(typed === "" ? undefined : typed)} />
        {page === undefined ? null : <Summary job={job} page={page} match={match} isFormer={isFormer} />}
      </div>
      {page === undefined ? (
        error === null ? (
          <div aria-busy="true" />
        ) : (
          <Failed error={error} retry={() => void refetch()} />
        )
      ) : page.total === 0 ? (
        <p className={classes.soft}>No file matches.</p>
      ) : (
        <Rows job={job} page={page} />
      )}
      {page === undefined || page.total <= page.items.length ? null : (
        <p className={classes.more}>
          <Button size="sm" onClick={() => setRows(Math.min(FILES_MAX, page.items.length + ROWS))}>
            Show more
          </Button>
          <span>
            {number(page.items.length)} of {number(page.total)} are shown
          </span>
        </p>
      )}
    </Panel>
  );
}

interface SummaryProps {
  job: JobView;
  page: KeptFilesPage;
  match: string | undefined;
  /** The page is the answer to the filter before: what it counts is not what would be deleted. */
  isFormer: boolean;
}

function Summary({ job, page, match, isFormer }: SummaryProps) {
  const now = useNow();
  const isLive = !hasEnded(job) && page.as_of !== null;
  const pattern = match === undefined ? "**" : patternOf(match);
  const deletes = useRights().writes(job) && canDeleteFiles(job) && page.total > 0 && !isFormer;
  return (
    <>
      <span className={classes.soft}>
        {counted(page.total, "file")}, {bytes(page.total_bytes)}
        {isLive ? `, as of ${ago(page.as_of as string, now)}` : ""}
      </span>
      {deletes ? (
        <DeleteFiles
          job={job}
          pattern={pattern}
          button={match === undefined ? "Delete all" : "Delete these"}
          what={`${counted(page.total, "file")}, ${bytes(page.total_bytes)}`}
        />
      ) : null}
    </>
  );
}

function Rows({ job, page }: { job: JobView; page: KeptFilesPage }) {
  const [opened, setOpened] = useState<string | null>(null);
  const rights = useRights();
  const fetches = rights.has("checkpoint.read", job.project);
  const deletes = rights.writes(job) && canDeleteFiles(job);
  const onToggle = useCallback((path: string) => setOpened((before) => (before === path ? null : path)), []);
  return (
    <div className={classes.scroll}>
      <table className={classes.table}>
        <thead>
          <tr>
            <th scope="col">Path</th>
            <th scope="col">Size</th>
            <th scope="col" className={classes.wide}>
              Modified
            </th>
            <th scope="col" className={classes.wide}>
              Attempt
            </th>
            <th scope="col">
              <span className={classes.unseen}>Download</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {page.items.map((file) => (
            <FileRow
              key={file.path}
              job={job}
              file={file}
              fetches={fetches}
              deletes={deletes}
              isOpen={opened === file.path}
              onToggle={onToggle}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function NoFiles({ job }: { job: JobView }) {
  return (
    <Empty title={hasEnded(job) ? "No files" : "No files yet"} command={'outputs: {keep: ["out/", "*.pt"]}'}>
      <p>
        New and changed files below the working folder are kept: every minute while the job runs, when it is asked to
        stop, and at its end. The next attempt finds them. The spec can name those to keep.
      </p>
    </Empty>
  );
}
