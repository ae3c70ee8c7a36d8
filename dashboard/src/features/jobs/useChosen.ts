/** Which jobs are chosen: by id, over all pages, each as it was last seen. */
import { useCallback, useState } from "react";
import type { JobView } from "@/api/generated";

export interface Chosen {
  chosen: ReadonlyMap<string, JobView>;
  choose: (jobs: readonly JobView[], isChosen: boolean) => void;
  clear: () => void;
}

export function useChosen(visible: readonly JobView[]): Chosen {
  const [kept, setKept] = useState<ReadonlyMap<string, JobView>>(new Map());
  const fresh = new Map(visible.map((job) => [job.id, job]));
  const chosen = new Map([...kept].map(([id, job]) => [id, fresh.get(id) ?? job]));
  // The same function always: rows that did not change are not drawn again.
  const choose = useCallback((jobs: readonly JobView[], isChosen: boolean) => {
    setKept((before) => {
      const next = new Map(before);
      for (const job of jobs) {
        if (isChosen) next.set(job.id, job);
        else next.delete(job.id);
      }
      return next;
    });
  }, []);
  return { chosen, choose, clear: () => setKept(new Map()) };
}
