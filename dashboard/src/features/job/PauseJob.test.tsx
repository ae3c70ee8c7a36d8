import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { type JobView, pauseJob, resumeJob } from "@/api/generated";
import { render } from "@/testing/render";
import { PauseJob } from "./PauseJob";

vi.mock("@/api/generated", () => ({ pauseJob: vi.fn(), resumeJob: vi.fn() }));

const JOB = { id: "j", state: "running", intent: null } as JobView;
const show = (job: JobView) =>
  render(
    <QueryClientProvider client={new QueryClient()}>
      <PauseJob job={job} />
    </QueryClientProvider>,
  );
const asked = expect.objectContaining({ path: { reference: "j" } });

describe("pausing", () => {
  it("is one click, and so is the return to the queue", async () => {
    show(JOB);
    fireEvent.click(await screen.findByRole("button", { name: "Pause" }));
    await waitFor(() => expect(pauseJob).toHaveBeenCalledWith(asked));
  });

  it.each([{ state: "paused" }, { intent: "pause" }] as const)("is undone for %j", async (change) => {
    show({ ...JOB, ...change });
    fireEvent.click(await screen.findByRole("button", { name: "Resume" }));
    await waitFor(() => expect(resumeJob).toHaveBeenCalledWith(asked));
  });

  it("shows why it was refused", async () => {
    vi.mocked(pauseJob).mockRejectedValue(Failure.answered(409, { title: "No", detail: "it is being stopped" }));
    show(JOB);
    fireEvent.click(await screen.findByRole("button", { name: "Pause" }));
    expect((await screen.findByRole("alert")).textContent).toContain("it is being stopped");
  });

  it("is not offered while it is cancelled", async () => {
    const { container } = show({ ...JOB, intent: "cancel" });
    await waitFor(() => expect(container.querySelector("button")).toBeNull());
  });
});
