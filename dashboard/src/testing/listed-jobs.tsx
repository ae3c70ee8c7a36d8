/** Three listed jobs, and the page of jobs over them. */
import { fireEvent, screen } from "@testing-library/react";
import { JobsPage } from "@/features/jobs/JobsPage";
import { readJobsView } from "@/features/jobs/view";
import { aJob, PROGRESS } from "./jobs";
import { type Asked, open } from "./pages";

export const JOBS = [
  aJob({
    id: "1",
    name: "waits",
    project: "vision",
    state: "queued",
    queue: { position: 3, reason: "behind job x, which is larger", estimated_start: "2020-01-01T12:00:00Z" },
  }),
  aJob({
    id: "2",
    name: "runs",
    owner: "ada",
    labels: { team: "nlp" },
    progress: { ...PROGRESS, latest: { loss: "NaN" }, main: "loss" },
  }),
  aJob({
    id: "3",
    name: "broke",
    state: "failed",
    outcome: { reason: "user_error", message: "script exited with code 1 on rank 1" },
  }),
];

export const CURSOR = "01a201d6-041d-7787-80c4-00a52f02a2d6";

export function answer({ path, method }: Asked) {
  if (path === "/v1/series") return { body: { jobs: [] } };
  if (method === "POST") {
    const job = JOBS.find((one) => path === `/v1/jobs/${one.id}/cancel`);
    if (job?.id === "2") return { status: 409, body: { title: "Conflict", detail: "job 2 has already succeeded" } };
    return { status: 202, body: { ...job, state: "cancelled" } };
  }
  if (method === "DELETE") return { status: 204, body: null };
  return { body: { items: JOBS, next_cursor: CURSOR, total: 3 } };
}

export const page = (search = "") => open("/jobs", JobsPage, search, readJobsView);
export const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr") as HTMLElement;
export const press = (key: string) => fireEvent.keyDown(document.body, { key });
