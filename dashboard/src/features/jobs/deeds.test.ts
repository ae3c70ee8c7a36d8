import { expect, it } from "vitest";
import { Refusal } from "@/api/client";
import { aJob } from "@/testing/jobs";
import { type Answer, cancelEach } from "./cancelling";

it("asks for each job, in order, and says what became of each, although one is refused", async () => {
  const jobs = ["waits", "ended", "runs"].map((name) => aJob({ id: name, name }));
  const asked: string[] = [];
  const answers: Answer[] = [];
  const cancel = async (job: (typeof jobs)[0]) => {
    asked.push(job.id);
    if (job.id === "ended") throw new Refusal(409, { detail: "job ended has already succeeded" });
    return job.id === "waits" ? { ...job, state: "cancelled" as const } : { ...job, intent: "cancel" as const };
  };
  await cancelEach(jobs, cancel, (answer) => answers.push(answer));
  expect(asked).toEqual(["waits", "ended", "runs"]);
  expect(answers.map(({ job, said, isRefused }) => [job.name, said, isRefused])).toEqual([
    ["waits", "cancelled", false],
    ["ended", "job ended has already succeeded", true],
    ["runs", "asked to stop; it ends when its processes are gone", false],
  ]);
});
