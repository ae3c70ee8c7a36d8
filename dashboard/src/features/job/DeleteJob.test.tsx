import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { deleteJob, type JobView, listJobCheckpoints } from "@/api/generated";
import { render } from "@/testing/render";
import { DeleteJob } from "./DeleteJob";

const navigate = vi.fn(() => Promise.resolve());
vi.mock("@/api/generated", () => ({ deleteJob: vi.fn(), listJobCheckpoints: vi.fn() }));
vi.mock("@tanstack/react-router", () => ({ useNavigate: () => navigate }));

const JOB = { id: "a", name: "digits", kind: "train", state: "failed" } as JobView;

beforeEach(() => {
  vi.clearAllMocks();
  vi.mocked(listJobCheckpoints).mockResolvedValue({ data: { items: [{ step: 100 }, { step: 50 }] } } as never);
});

function ask() {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <DeleteJob job={JOB} />
    </QueryClientProvider>,
  );
  fireEvent.click(screen.getByRole("button", { name: "Delete" }));
}

it("says what goes with it, is done only when confirmed, and leads back to the list", async () => {
  vi.mocked(deleteJob).mockResolvedValue({} as never);
  ask();
  expect(await screen.findByText(/its 2 checkpoints and the job itself/)).toBeTruthy();
  expect(deleteJob).not.toHaveBeenCalled();
  fireEvent.click(screen.getByRole("button", { name: "Delete the job" }));
  await waitFor(() => expect(navigate).toHaveBeenCalledWith({ to: "/jobs" }));
  expect(deleteJob).toHaveBeenCalledWith(expect.objectContaining({ path: { reference: "a" } }));
});

it("stays and shows why it was refused", async () => {
  const problem = { title: "It contradicts something", detail: "node atlas has not said yet", next_step: "Try again." };
  vi.mocked(deleteJob).mockRejectedValue(Failure.answered(409, problem));
  ask();
  fireEvent.click(await screen.findByRole("button", { name: "Delete the job" }));
  expect((await screen.findByRole("alert")).textContent).toContain("node atlas has not said yet");
  expect(navigate).not.toHaveBeenCalled();
});
