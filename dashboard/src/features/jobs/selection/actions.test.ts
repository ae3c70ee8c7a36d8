import { QueryClient } from "@tanstack/react-query";
import { expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { cancelJob, deleteJob, type JobView } from "@/api/generated";
import { aJob } from "@/testing/jobs";
import { type Answer, askEach, CANCEL, DELETE } from "./actions";

vi.mock("@/api/generated", () => ({ cancelJob: vi.fn(), deleteJob: vi.fn() }));

it("asks for each job, in order, and says what became of each, although one is refused", async () => {
  const jobs = ["waits", "ended", "runs"].map((name) => aJob({ id: name, name }));
  const asked: string[] = [];
  const answers: Answer[] = [];
  vi.mocked(cancelJob).mockImplementation((async ({ path: { reference } }: { path: { reference: string } }) => {
    asked.push(reference);
    if (reference === "ended") throw Failure.answered(409, { detail: "job ended has already succeeded" });
    return { data: reference === "waits" ? { state: "cancelled" } : { state: "running", intent: "cancel" } };
  }) as never);
  const queries = new QueryClient();
  await askEach(
    jobs,
    (job) => CANCEL.ask(job, queries),
    (answer) => answers.push(answer),
  );
  expect(asked).toEqual(["waits", "ended", "runs"]);
  expect(answers.map(({ job, said, isRefused }) => [job.name, said, isRefused])).toEqual([
    ["waits", "cancelled", false],
    ["ended", "job ended has already succeeded", true],
    ["runs", "asked to stop; it ends when its processes are gone", false],
  ]);
});

it("forgets what was known of a job that is deleted, and of no other", async () => {
  vi.mocked(deleteJob).mockResolvedValue({} as never);
  const queries = new QueryClient();
  for (const id of ["gone", "stays"]) queries.setQueryData(["job", id], aJob({ id }));
  expect(await DELETE.ask(aJob({ id: "gone" }), queries)).toBe("deleted");
  expect(queries.getQueryData(["job", "gone"])).toBeUndefined();
  expect(queries.getQueryData<JobView>(["job", "stays"])?.id).toBe("stays");
});
