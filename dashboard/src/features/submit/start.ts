/** From what a new spec starts, as the address says: nothing, or a job to clone. */
export interface SubmitStart {
  clone?: string;
}

export function readSubmitStart(search: Record<string, unknown>): SubmitStart {
  return typeof search.clone === "string" ? { clone: search.clone } : {};
}
