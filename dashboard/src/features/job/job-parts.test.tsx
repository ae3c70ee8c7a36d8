import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render, screen, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
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
import { JobActions } from "./JobActions";
import { JobHeader } from "./JobHeader";
import { OutcomePanel } from "./OutcomePanel";
import { ProgressPanel } from "./ProgressPanel";
import { PromisePanel } from "./PromisePanel";
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
  plan: { batch_size: 64, micro_batch_size: 8, accumulation_steps: 4, world_size: 2, steps: 100 },
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
  return render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>{part}</QueryClientProvider>
    </MantineProvider>,
  );
}

afterEach(() => vi.useRealTimers());

beforeEach(() => {
  vi.mocked(listJobCheckpoints).mockResolvedValue({ data: { items: [] } } as never);
  vi.mocked(getSession).mockReset();
  vi.mocked(getSession).mockResolvedValue({ data: ADMIN } as never);
  vi.mocked(cancelJob).mockReset();
});

describe("the promise", () => {
  it("is the batch and the factors that make it", () => {
    show(<PromisePanel job={JOB} />);
    expect(screen.getByTestId("promise").textContent).toBe(
      "64effective batch, samples a step=2ranks×8micro-batch×4accumulation",
    );
  });

  it("is told in the service's words where the batch does not divide", () => {
    const plan = { batch_size: 65, micro_batch_size: 8, accumulation_steps: 5, world_size: 2 };
    const sentence = "65 over 2 ranks: shards of 32 or 33, each in 5 of 6 to 7 samples";
    show(<PromisePanel job={{ ...JOB, plan, plan_sentence: sentence }} />);
    expect(screen.getByText(sentence)).toBeTruthy();
  });

  it("is not made for a script", () => {
    const spec = { script: { command: ["train.py", "--lr", "1"] } };
    show(<PromisePanel job={{ ...JOB, kind: "script", plan: null, spec }} />);
    expect(screen.getByText("train.py --lr 1")).toBeTruthy();
    expect(screen.queryByTestId("promise")).toBeNull();
  });
});

describe("progress", () => {
  it("says how far, and how long it still takes", () => {
    show(<ProgressPanel job={JOB} />);
    expect(screen.getByRole("progressbar").getAttribute("aria-valuenow")).toBe("40");
    expect(screen.getByText("40 %")).toBeTruthy();
    expect(screen.getByText("1 min 30 s")).toBeTruthy();
  });
});

describe("the header", () => {
  it("leads to the other jobs of the project, the owner, the label and the node", () => {
    const attempt = { number: 2, nodes: ["atlas"] } as AttemptView;
    show(<JobHeader job={{ ...JOB, owner: "ada", labels: { team: "nlp" }, attempt }} />);
    const leads = (name: string) => screen.getByRole("link", { name }).getAttribute("href");
    expect(leads("default")).toBe('/jobs {"project":"default"}');
    expect(leads("by ada")).toBe('/jobs {"owner":"ada"}');
    expect(leads("team=nlp")).toBe('/jobs {"label":"team=nlp"}');
    expect(leads("atlas")).toBe('/jobs {"node":"atlas"}');
    expect(getJobSpec).not.toHaveBeenCalled();
  });

  it("has the time limit with its origin", () => {
    show(<JobHeader job={{ ...JOB, limit: { seconds: 86_400, source: "service" } }} />);
    expect(screen.getByText("Limit").nextSibling?.textContent).toBe("1 d, default of the service");
  });

  it("has the commit that a branch was when the job was submitted", async () => {
    const commit = "3f2a".repeat(10);
    const code = { git: "https://example.org/a.git", ref: "main" };
    vi.mocked(getJobSpec).mockResolvedValue({
      data: { job_id: JOB.id, spec: { code: { ...code, ref: commit } } },
    } as never);
    show(<JobHeader job={{ ...JOB, spec: { code } }} />);
    expect((await screen.findByText("3f2a3f2a3f2a")).title).toBe(commit);
    expect(screen.getByRole("button", { name: "Copy the commit" })).toBeTruthy();
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

it("offers to start from the newest checkpoint", async () => {
  vi.mocked(listJobCheckpoints).mockResolvedValue({ data: { items: [{ step: 100 }, { step: 50 }] } } as never);
  show(<JobActions job={JOB} />);
  const link = await screen.findByRole("link", { name: "New job from step 100" });
  expect(link.getAttribute("href")).toBe(`/submit ${JSON.stringify({ clone: JOB.id, from: "100" })}`);
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
