/** Change of labels, note and star of a job; the lists are asked for again. */
import { useQueryClient } from "@tanstack/react-query";
import { type JobMarks, markJob } from "@/api/generated";

export function useMark(id: string): (marks: JobMarks) => Promise<void> {
  const queries = useQueryClient();
  return async (body) => {
    await markJob({ path: { reference: id }, body, throwOnError: true });
    await Promise.all([["jobs"], ["job", id]].map((queryKey) => queries.invalidateQueries({ queryKey })));
  };
}
