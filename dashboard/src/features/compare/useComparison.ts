/** The compared jobs, from the address and the service; what is chosen here goes to the address first. */
import { useQueries } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useRef } from "react";
import { Refusal } from "@/api/client";
import { getJob, type JobView } from "@/api/generated";
import { usePace } from "@/api/pace";
import { polled } from "@/api/polling";
import { slotsOf } from "@/lib/palette";
import { listed, written } from "./view";

const ENDED = ["succeeded", "failed", "cancelled"];

export interface Compared {
  /** As the address names them: ids, or names. */
  chosen: readonly string[];
  jobs: readonly JobView[];
  slots: ReadonlyMap<string, number>;
  hidden: ReadonlySet<string>;
  isPending: boolean;
  /** Named in the address, and unknown to the service. */
  missing: readonly string[];
  error: Error | null;
  retry: () => void;
  choose: (jobs: readonly string[]) => void;
  hide: (job: string, isHidden: boolean) => void;
  remove: (job: string) => void;
}

export function useComparison(): Compared {
  const search = useSearch({ from: "/compare" });
  const navigate = useNavigate();
  const pace = usePace();
  const chosen = listed(search.jobs);
  const answers = useQueries({
    queries: chosen.map((reference) =>
      polled<JobView>(
        {
          key: ["job", reference],
          fetch: (signal) => getJob({ path: { reference }, signal, throwOnError: true }),
          seconds: 2,
          isFinal: (job) => ENDED.includes(job.state),
        },
        pace,
      ),
    ),
  });
  const found = chosen.map((reference, index) => ({
    reference,
    job: answers[index]?.data,
    error: answers[index]?.error,
  }));
  const jobs = found.flatMap(({ job }) => (job === undefined ? [] : [job]));
  const before = useRef<ReadonlyMap<string, number>>(new Map());
  const ids = jobs.map(({ id }) => id).join(",");
  const slots = useMemo(() => {
    before.current = slotsOf(listed(ids), before.current);
    return before.current;
  }, [ids]);
  const hiddenNames = search.hidden ?? "";
  const hidden = useMemo(() => new Set(listed(hiddenNames)), [hiddenNames]);
  const isUnknown = (error: unknown) => error instanceof Refusal && error.status === 404;

  const go = (next: readonly string[], without: Iterable<string>) =>
    void navigate({
      to: "/compare",
      search: written(
        next,
        [...without].filter((id) => next.includes(id)),
      ),
      replace: true,
    });
  return {
    chosen,
    jobs,
    slots,
    hidden: useMemo(
      () => new Set(found.flatMap(({ reference, job }) => (job && hidden.has(reference) ? [job.id] : []))),
      [hidden, found],
    ),
    isPending: answers.some(({ isPending }) => isPending),
    missing: found.filter(({ error }) => isUnknown(error)).map(({ reference }) => reference),
    error: found.find(({ job, error }) => job === undefined && error && !isUnknown(error))?.error ?? null,
    retry: () => {
      for (const answer of answers) if (answer.error !== null) void answer.refetch();
    },
    choose: (next) => go(next, hidden),
    hide: (id, isHidden) => {
      const reference = found.find(({ job }) => job?.id === id)?.reference ?? id;
      const next = new Set(hidden);
      if (isHidden) next.add(reference);
      else next.delete(reference);
      go(chosen, next);
    },
    remove: (id) =>
      go(
        chosen.filter(
          (reference) => reference !== id && found.find(({ job }) => job?.id === id)?.reference !== reference,
        ),
        hidden,
      ),
  };
}
