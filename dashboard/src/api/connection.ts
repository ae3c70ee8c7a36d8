/** Since when the service does not answer, seen from every request of the page. */
import type { QueryCache } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { Failure } from "./client";

export interface Connection {
  lostSince: number | null;
}

let connection: Connection = { lostSince: null };
const listeners = new Set<() => void>();

/** Follow the ends of all queries in `cache`. */
export function watchConnection(cache: QueryCache): () => void {
  return cache.subscribe((event) => {
    if (event.type !== "updated") return;
    if (event.action.type === "success") set({ lostSince: null });
    else if (event.action.type === "error") {
      const { error } = event.action;
      if (!(error instanceof Failure)) return;
      // A refusal is an answer too. A broken answer proves nothing about the connection: its
      // panel is marked as old.
      if (error.kind === "unreached") set({ lostSince: connection.lostSince ?? Date.now() });
      else if (error.kind !== "broken") set({ lostSince: null });
    }
  });
}

export function useConnection(): Connection {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => connection,
  );
}

function set(next: Connection): void {
  connection = next;
  for (const listener of listeners) listener();
}
