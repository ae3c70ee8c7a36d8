/** Filters and actions of a log. */
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { downloadJobLogs } from "@/api/generated";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { Input } from "@/components/Input";
import { Select } from "@/components/Select";
import { type LogFilter, type LogView, STREAMS, type Stream } from "@/lib/log-view";
import { saveFile } from "@/lib/save-file";
import classes from "./LogViewer.module.css";

/** Delay between the last key and the search. */
const TYPING_MS = 300;

interface LogToolbarProps {
  jobId: string;
  jobName: string;
  attempts: number;
  ranks: number;
  view: LogView;
  filter: LogFilter;
  onChoose: (view: LogView) => void;
  wrap: boolean;
  onWrap: (wrap: boolean) => void;
  showTime: boolean;
  onShowTime: (show: boolean) => void;
  isSeeking: boolean;
  onFirstError: () => void;
}

export function LogToolbar(props: LogToolbarProps) {
  const { attempts, ranks, view, onChoose, wrap, onWrap, showTime, onShowTime } = props;
  const choose = (change: LogView) => onChoose({ ...view, line: undefined, ...change });
  const last = Math.max(ranks - 1, view.rank ?? 0);
  return (
    <div className={classes.tools}>
      <LogSearch
        value={view.search ?? ""}
        onSearch={(search) => choose({ search: search === "" ? undefined : search })}
      />
      {attempts > 1 || view.attempt !== undefined ? (
        <Select
          size="xs"
          aria-label="Attempt"
          value={view.attempt ?? ""}
          onChange={(event) => choose({ attempt: numberOf(event.target.value) })}
        >
          <option value="">all attempts</option>
          {upTo(Math.max(attempts, view.attempt ?? 1)).map((index) => (
            <option key={index} value={index + 1}>
              attempt {index + 1}
            </option>
          ))}
        </Select>
      ) : null}
      <Select
        size="xs"
        aria-label="Rank"
        value={view.rank ?? ""}
        onChange={(event) => choose({ rank: numberOf(event.target.value) })}
      >
        <option value="">all ranks</option>
        {upTo(last + 1).map((rank) => (
          <option key={rank} value={rank}>
            rank {rank}
          </option>
        ))}
        <option value={-1}>launcher</option>
      </Select>
      <Select
        size="xs"
        aria-label="Stream"
        value={view.stream ?? ""}
        onChange={(event) => choose({ stream: (event.target.value || undefined) as Stream | undefined })}
      >
        <option value="">all streams</option>
        {STREAMS.map((stream) => (
          <option key={stream} value={stream}>
            {stream}
          </option>
        ))}
      </Select>
      <Button size="xs" disabled={props.isSeeking} onClick={props.onFirstError}>
        {props.isSeeking ? "Looking…" : "First error"}
      </Button>
      <span className={classes.gap} />
      <label>
        <input type="checkbox" checked={showTime} onChange={(event) => onShowTime(event.target.checked)} /> Times
      </label>
      <label>
        <input type="checkbox" checked={wrap} onChange={(event) => onWrap(event.target.checked)} /> Wrap
      </label>
      <LogDownload jobId={props.jobId} jobName={props.jobName} filter={props.filter} />
    </div>
  );
}

function LogSearch({ value, onSearch }: { value: string; onSearch: (search: string) => void }) {
  const [typed, setTyped] = useState(value);
  const send = useRef(onSearch);
  send.current = onSearch;
  const sent = useRef(value);
  if (value !== sent.current) {
    // The address changed by itself: a link, or "Show all lines".
    sent.current = value;
    setTyped(value);
  }
  useEffect(() => {
    if (typed === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = typed;
      send.current(typed);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <Input
      size="xs"
      type="search"
      className={classes.search}
      aria-label="Search the log"
      placeholder="Search the log"
      data-page-search
      maxLength={200}
      value={typed}
      onChange={(event) => setTyped(event.target.value)}
    />
  );
}

function LogDownload({ jobId, jobName, filter }: { jobId: string; jobName: string; filter: LogFilter }) {
  const isFiltered = Object.keys(filter).length > 0;
  const download = useMutation({
    mutationFn: async (query: LogFilter) => {
      const { data } = await downloadJobLogs({
        path: { reference: jobId },
        query,
        parseAs: "blob",
        throwOnError: true,
      });
      // Asked for as a blob, whatever the description calls it.
      return data as unknown as Blob;
    },
    onSuccess: (log) => saveFile(`${jobName}.log`, log),
  });
  return (
    <>
      {isFiltered ? (
        <Button size="xs" disabled={download.isPending} onClick={() => download.mutate(filter)}>
          Download these
        </Button>
      ) : null}
      <Button size="xs" disabled={download.isPending} onClick={() => download.mutate({})}>
        {download.isPending ? "Downloading…" : "Download all"}
      </Button>
      {download.error === null ? null : <Failed error={download.error} />}
    </>
  );
}

function numberOf(value: string): number | undefined {
  return value === "" ? undefined : Number(value);
}

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
