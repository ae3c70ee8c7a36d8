/** All that shows the queue is asked for again after a change of one of its jobs. */
import { useQueryClient } from "@tanstack/react-query";

const KEYS = ["queue", "shares", "nodes", "jobs", "job", "home"];

export function useChanged(): () => void {
  const queries = useQueryClient();
  return () => {
    for (const key of KEYS) void queries.invalidateQueries({ queryKey: [key] });
  };
}
