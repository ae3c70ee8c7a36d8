/** Whether the service answers, seen from every request of the page: since when not, and when it last did. */
import type { QueryCache } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { Refusal } from "./client";

export interface Connection {
  lostSince: number | null;
  heardAt: number | null;
}

let connection: Connection = { lostSince: null, heardAt: null };
const listeners = new Set<() => void>();

/** Follow the ends of all queries in `cache`. */
export function watchConnection(cache: QueryCache): () => void {
  return cache.subscribe((event) => {
    if (event.type !== "updated") return;
    if (event.action.type === "success") set({ lostSince: null, heardAt: Date.now() });
    else if (event.action.type === "error") {
      const unreached = event.action.error instanceof Refusal && event.action.error.status === 0;
      // Any answer at all, a refusal too, is a sign of life.
      set(
        unreached
          ? { ...connection, lostSince: connection.lostSince ?? Date.now() }
          : { lostSince: null, heardAt: Date.now() },
      );
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
