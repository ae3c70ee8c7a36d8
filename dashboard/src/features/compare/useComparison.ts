/** The compared jobs, from the address and the service; what is chosen here goes to the address first. */
import { useQueries } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useRef } from "react";
import { Failure } from "@/api/client";
import { getJob, type JobView } from "@/api/generated";
import { usePace } from "@/api/pace";
import { polled } from "@/api/polling";
import { hasEnded } from "@/lib/ended";
import { listed } from "@/lib/listed";
import { readLook } from "@/lib/look";
import { slotsOf } from "@/lib/palette";
import { written } from "./view";

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
          isFinal: hasEnded,
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
  // By the address, because answers come in any order: after a reload each job has its colour again.
  const ids = found.map(({ reference, job }) => `${reference}=${job?.id ?? reference}`).join(",");
  const slots = useMemo(() => {
    const pairs = listed(ids).map((pair) => pair.split("=") as [string, string]);
    before.current = slotsOf(
      pairs.map(([reference]) => reference),
      before.current,
    );
    return new Map(pairs.map(([reference, id]) => [id, before.current.get(reference) ?? 0]));
  }, [ids]);
  const hidden = listed(search.hidden);
  // By its text, because a new set on each poll would draw all charts again.
  const hiddenIds = found
    .flatMap(({ reference, job }) => (job && hidden.includes(reference) ? [job.id] : []))
    .join(",");
  const isUnknown = (error: unknown) => error instanceof Failure && error.status === 404;

  const referenceOf = (id: string) => found.find(({ job }) => job?.id === id)?.reference ?? id;
  const go = (next: readonly string[], without: readonly string[]) =>
    void navigate({
      to: "/compare",
      search: (before) => {
        const left = without.filter((each) => next.includes(each));
        return { ...written(next, left), ...readLook({ ...before }) };
      },
      replace: true,
      resetScroll: false,
    });
  return {
    chosen,
    jobs,
    slots,
    hidden: useMemo(() => new Set(listed(hiddenIds)), [hiddenIds]),
    isPending: answers.some(({ isPending }) => isPending),
    missing: found.filter(({ error }) => isUnknown(error)).map(({ reference }) => reference),
    error: found.find(({ job, error }) => job === undefined && error && !isUnknown(error))?.error ?? null,
    retry: () => {
      for (const answer of answers) if (answer.error !== null) void answer.refetch();
    },
    choose: (next) => go(next, hidden),
    hide: (id, isHidden) => {
      const others = hidden.filter((each) => each !== referenceOf(id));
      go(chosen, isHidden ? [...others, referenceOf(id)] : others);
    },
    remove: (id) =>
      go(
        chosen.filter((each) => each !== referenceOf(id)),
        hidden,
      ),
  };
}
