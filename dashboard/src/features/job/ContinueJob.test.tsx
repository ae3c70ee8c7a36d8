import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen, waitFor } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { cloneJob, type JobView } from "@/api/generated";
import { render } from "@/testing/render";
import { ContinueJob } from "./ContinueJob";

const navigate = vi.hoisted(() => vi.fn());
vi.mock("@/api/generated", () => ({ cloneJob: vi.fn() }));
vi.mock("@tanstack/react-router", () => ({ useNavigate: () => navigate }));

const show = () =>
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ContinueJob job={{ id: "j", state: "failed" } as JobView} />
    </QueryClientProvider>,
  );

it("submits a job that continues this one, and shows it", async () => {
  vi.mocked(cloneJob).mockResolvedValue({ data: { id: "made" } } as never);
  show();
  fireEvent.click(await screen.findByRole("button", { name: "Continue" }));
  await waitFor(() => expect(navigate).toHaveBeenCalledWith({ to: "/jobs/$job", params: { job: "made" } }));
  expect(cloneJob).toHaveBeenCalledWith(
    expect.objectContaining({ path: { reference: "j" }, body: { set: { "/continues": "j" } } }),
  );
});

it("shows why it was refused", async () => {
  vi.mocked(cloneJob).mockRejectedValue(Failure.answered(409, { title: "No", detail: "the project is archived" }));
  show();
  fireEvent.click(await screen.findByRole("button", { name: "Continue" }));
  expect((await screen.findByRole("alert")).textContent).toContain("the project is archived");
});
