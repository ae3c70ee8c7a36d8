/** Keys of the list: the row that `j` and `k` move to, and what is done with it or with the selection. */
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import type { ListedJob } from "@/api/generated";
import { useKeys } from "@/app/keys";
import { COMPARED_MAX } from "@/lib/compared";
import type { Selection } from "../selection/useSelection";

/** The id of the row at the cursor; null before the first of them. */
export function useRowCursor(jobs: readonly ListedJob[], selection: Selection): string | null {
  const navigate = useNavigate();
  const [cursor, setCursor] = useState<string | null>(null);
  // By id: a job that is submitted meanwhile moves the rows, and not the cursor.
  const place = jobs.findIndex((job) => job.id === cursor);
  const move = (by: number) => () => {
    if (isElsewhere()) return;
    const next = place === -1 ? 0 : Math.min(jobs.length - 1, Math.max(0, place + by));
    setCursor(jobs[next]?.id ?? null);
  };
  const withRow = (act: (job: ListedJob) => void) => (event: KeyboardEvent) => {
    const job = jobs[place];
    if (job === undefined || isElsewhere()) return;
    event.preventDefault();
    act(job);
  };
  const open = withRow((job) => void navigate({ to: "/jobs/$job", params: { job: job.id } }));
  const openUnlessOnControl = (event: KeyboardEvent) => {
    // A link or a button that has the focus is what Enter is for.
    const isOnControl = event.target instanceof HTMLElement && event.target.closest("a, button, summary") !== null;
    if (!isOnControl) open(event);
  };
  const choose = withRow(({ id }) => selection.toggle(id));
  const compare = () => {
    const ids = selection.jobs.map(({ id }) => id);
    if (isElsewhere() || selection.isAll || ids.length < 2 || ids.length > COMPARED_MAX) return;
    void navigate({ to: "/compare", search: { jobs: ids } });
  };
  const toActions = () => {
    if (!isElsewhere()) document.querySelector<HTMLElement>("[data-actions] :is(a, button)")?.focus();
  };
  const clear = () => {
    if (!isElsewhere() && selection.jobs.length > 0) selection.clear();
  };
  useKeys({
    j: move(1),
    k: move(-1),
    x: choose,
    Enter: openUnlessOnControl,
    c: compare,
    a: toActions,
    Escape: clear,
  });
  useEffect(() => {
    if (cursor !== null) document.querySelector(`[data-row="${cursor}"]`)?.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  return cursor;
}

/** While a dialog is open the list behind it stands still. */
function isElsewhere(): boolean {
  return document.querySelector("[role='dialog']") !== null;
}
