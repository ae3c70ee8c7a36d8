import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import type { ReactNode } from "react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import {
  type AttemptView,
  cancelJob,
  getJobMetrics,
  getJobSpec,
  getSession,
  type JobView,
  listJobCheckpoints,
} from "@/api/generated";
import { ADMIN, VIEWER } from "@/testing/caller";
import { render } from "@/testing/render";
import { CheckpointsTab } from "./CheckpointsTab";
import { JobActions } from "./JobActions";
import { JobHeader } from "./JobHeader";
import { OutcomePanel } from "./OutcomePanel";
import { TimeSharesPanel } from "./TimeSharesPanel";

vi.mock("@/api/generated", () => ({
  cancelJob: vi.fn(),
  deleteJob: vi.fn(),
  getJobMetrics: vi.fn(),
  getJobSpec: vi.fn(),
  getSession: vi.fn(),
  listJobAttempts: vi.fn(),
  listJobCheckpoints: vi.fn(),
  listJobEvents: vi.fn(),
  pauseJob: vi.fn(),
  resumeJob: vi.fn(),
}));
vi.mock("@tanstack/react-router", () => ({
  useNavigate: () => vi.fn(),
  Link: ({ to, params, search, children }: { to: string; params?: object; search?: object; children: ReactNode }) => (
    <a href={`${to} ${JSON.stringify({ ...params, ...search })}`}>{children}</a>
  ),
}));

const JOB: JobView = {
  id: "01a201d5-ea7c-7168-88b5-5e795cf0ebe0",
  name: "digits",
  project: "default",
  kind: "train",
  state: "running",
  reason: null,
  spec: {},
  plan: { batch_size: 64, micro_batch_size: 8, accumulation_steps: 4, world_size: 2, copies: 2, steps: 100 },
  plan_sentence: "64 = 2 ranks × 8 samples × 4 accumulation steps",
  progress: { step: 40, steps: 100, samples: 2_560, fraction: 0.4, eta_seconds: 90 },
  attempt: null,
  queue: null,
  intent: null,
  outcome: null,
  priority: 50,
  labels: {},
  created_at: "2026-01-01T00:00:00Z",
  started_at: "2026-01-01T00:01:00Z",
  finished_at: null,
  version: 3,
};

function show(part: ReactNode) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  return render(<QueryClientProvider client={client}>{part}</QueryClientProvider>);
}

beforeEach(() => {
  vi.mocked(listJobCheckpoints).mockResolvedValue({ data: { items: [] } } as never);
  vi.mocked(getSession).mockReset();
  vi.mocked(getSession).mockResolvedValue({ data: ADMIN } as never);
  vi.mocked(cancelJob).mockReset();
});

describe("the header", () => {
  it("says how far, at what batch, and leads to the other jobs of the owner and the node", () => {
    const attempt = { number: 2, nodes: ["atlas"], world_size: 2 } as AttemptView;
    show(<JobHeader job={{ ...JOB, owner: "ada", attempt }} />);
    expect(screen.getByRole("progressbar").getAttribute("aria-valuenow")).toBe("40");
    const facts = within(screen.getByRole("list", { name: "Progress" })).getAllByRole("listitem");
    expect(facts.map(({ textContent }) => textContent)).toEqual([
      "40 %",
      "step 40 of 100",
      "1 min 30 s left",
      "batch 64 = 2 ranks × 8 × 4",
      "on atlas",
      "by ada",
    ]);
    const leads = (name: string) => screen.getByRole("link", { name }).getAttribute("href");
    expect(leads("by ada")).toBe('/jobs {"owner":"ada"}');
    expect(leads("atlas")).toBe('/jobs {"node":"atlas"}');
    expect(getJobSpec).not.toHaveBeenCalled();
  });
});

describe("cancelling", () => {
  it("says what it does, and is done only when confirmed", async () => {
    vi.mocked(cancelJob).mockResolvedValue({ data: JOB } as never);
    show(<JobActions job={JOB} />);
    fireEvent.click(await screen.findByRole("button", { name: "Cancel" }));
    expect(await screen.findByText(/saves a checkpoint, and stops/)).toBeTruthy();
    expect(cancelJob).not.toHaveBeenCalled();
    fireEvent.click(screen.getByRole("button", { name: "Cancel the job" }));
    await waitFor(() =>
      expect(cancelJob).toHaveBeenCalledWith(expect.objectContaining({ path: { reference: JOB.id } })),
    );
    await waitFor(() => expect(screen.queryByText(/saves a checkpoint/)).toBeNull());
  });

  it("shows why it was refused", async () => {
    const problem = {
      title: "It contradicts something",
      detail: "it has already succeeded",
      next_step: "Nothing runs.",
    };
    vi.mocked(cancelJob).mockRejectedValue(Failure.answered(409, problem));
    show(<JobActions job={JOB} />);
    fireEvent.click(await screen.findByRole("button", { name: "Cancel" }));
    fireEvent.click(await screen.findByRole("button", { name: "Cancel the job" }));
    expect((await screen.findByRole("alert")).textContent).toContain("it has already succeeded");
  });

  it("is not offered for a job that has ended, and not twice", async () => {
    show(<JobActions job={{ ...JOB, state: "failed" }} />);
    await screen.findByRole("button", { name: "Delete" });
    expect(screen.queryByRole("button", { name: "Cancel" })).toBeNull();
    show(<JobActions job={{ ...JOB, intent: "cancel" }} />);
    expect((await screen.findByRole<HTMLButtonElement>("button", { name: "Cancelling…" })).disabled).toBe(true);
  });

  it("is offered to a member for the own jobs, and to a viewer for none", async () => {
    const member = { ...VIEWER, rights_in: { default: ["job.read", "job.control_own"] } };
    vi.mocked(getSession).mockResolvedValue({ data: { ...member, rights: ["job.submit"] } } as never);
    const actions = show(["ben", "vera"].map((owner) => <JobActions key={owner} job={{ ...JOB, owner }} />));
    await waitFor(() => expect(screen.getAllByRole("link", { name: "Clone" })).toHaveLength(2));
    expect(screen.getAllByRole("button", { name: "Cancel" })).toHaveLength(1);
    actions.unmount();
    vi.mocked(getSession).mockResolvedValue({ data: VIEWER } as never);
    vi.mocked(listJobCheckpoints).mockResolvedValue({ data: { items: [{ step: 100 }] } } as never);
    const { container } = show(<JobActions job={{ ...JOB, state: "failed", owner: "vera" }} />);
    await waitFor(() => expect(getSession).toHaveBeenCalledTimes(2));
    await act(async () => {});
    expect(container.querySelector("a, button")).toBeNull();
  });

  it("shows the limit of a stop under way, and its reason", async () => {
    const grace = { seconds: 42, reason: "3 × the last checkpoint, 13.7 s" };
    show(<JobActions job={{ ...JOB, intent: "cancel", stop_grace: grace }} />);
    expect((await screen.findByRole("button", { name: "Cancelling… at most 42 s" })).title).toBe(grace.reason);
  });
});

it("offers to start a job from each checkpoint", async () => {
  const saved = { attempt: 1, sha256: "ab".repeat(32), bytes: 1, created_at: "2026-01-01T00:02:00Z" };
  const items = [100, 50].map((step) => ({ ...saved, step }));
  vi.mocked(listJobCheckpoints).mockResolvedValue({ data: { items } } as never);
  show(<CheckpointsTab job={JOB} />);
  const links = await screen.findAllByRole("link", { name: "Start a job from this" });
  expect(links.map((link) => link.getAttribute("href"))).toEqual(
    ["100", "50"].map((from) => `/submit ${JSON.stringify({ clone: JOB.id, from })}`),
  );
});

it("leads from a failure to the first error of the rank that failed", () => {
  const outcome = { reason: "user_error", message: "exit code 1 on rank 1", rank: 1, log_excerpt: "a\n\u001b[31mb" };
  const attempt = { number: 2, nodes: ["atlas"] };
  show(<OutcomePanel job={{ ...JOB, state: "failed", outcome, attempt } as JobView} reference="digits" />);
  expect(screen.getByText("b").className).toMatch(/red/);
  const link = screen.getByRole("link", { name: "First error of rank 1 in the logs" });
  const search = { job: "digits", tab: "logs", attempt: 2, rank: 1, line: "first-error" };
  expect(link.getAttribute("href")).toBe(`/jobs/$job ${JSON.stringify(search)}`);
});

it("puts the exception of a failure first, then its frame, and what to do", () => {
  const log = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    go()\nValueError: no shard';
  const outcome = { reason: "user_error", message: "exit code 1 on rank 1", advice: "Fix it.", log_excerpt: log };
  show(<OutcomePanel job={{ ...JOB, state: "failed", outcome } as JobView} reference="digits" />);
  expect(screen.getByTestId("outcome").textContent).toMatch(
    /^FailedValueError: no shardFile "train.py", line 3, in mainWhat to do\. Fix it\.Exit code 1 on rank 1\./,
  );
});

it("asks for the times of the newest steps only", async () => {
  const series = (part: string, value: number[]) => ({ name: `time/${part}_seconds`, value });
  const answer = { series: [series("step", [1, 1]), series("data", [0.41, 0.41]), series("forward", [0.59, 0.59])] };
  vi.mocked(getJobMetrics).mockResolvedValue({ data: answer } as never);
  show(
    <TimeSharesPanel
      job={{ ...JOB, progress: { step: 450, steps: 500, samples: 1, fraction: 0.9, eta_seconds: 1 } }}
    />,
  );
  expect(await screen.findByText(/waits for data 41 % of the time/)).toBeTruthy();
  expect(vi.mocked(getJobMetrics).mock.calls[0]?.[0].query).toMatchObject({ from_step: 351 });
});
