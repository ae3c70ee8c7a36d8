import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { cloneJob, getJob, type JobView, planJob, submitJob } from "@/api/generated";
import { render } from "@/testing/render";
import { readText } from "./text/read";
import { Workbench } from "./Workbench";

const went = vi.fn(async (_: unknown) => {});
vi.mock("@tanstack/react-router", () => ({
  useNavigate: () => went,
  Link: ({ children }: { children: ReactNode }) => <a href="/jobs">{children}</a>,
}));
vi.mock("@/api/generated", () => ({ planJob: vi.fn(), submitJob: vi.fn(), cloneJob: vi.fn(), getJob: vi.fn() }));
vi.mock("@/api/generated/client.gen", () => ({
  client: { get: async () => ({ data: { components: { schemas: {} } } }) },
}));
// CodeMirror needs a browser's layout; what the page says to it is what counts here.
vi.mock("./editor/YamlEditor", () => ({
  YamlEditor: ({ text, onChange, marks }: { text: string; onChange: (text: string) => void; marks: unknown }) => (
    <>
      <textarea aria-label="YAML of the job" value={text} onChange={({ target }) => onChange(target.value)} />
      <output>{JSON.stringify(marks)}</output>
    </>
  ),
}));

const TEXT = "name: first\nkind: script\nscript:\n  command: [train.py]\n";
const PLAN = { plan: null, sentence: null, spec: { name: "first", labels: {} }, placement: ["atlas"], queue: null };
const refused = Failure.answered(422, {
  detail: "name: expected more",
  errors: [{ pointer: "/name", message: "expected more", next_step: "write more" }],
});

const calls = <T,>(mock: T) =>
  vi.mocked(mock as (options: unknown) => unknown).mock.calls.map(([options]) => options as Sent);
interface Sent {
  bodySerializer: () => string;
  headers: { "idempotency-key": string };
  path: unknown;
  signal: AbortSignal;
}

function show(original: Parameters<typeof Workbench>[0]["original"] = null, initial = TEXT) {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  return render(
    <QueryClientProvider client={queries}>
      <Workbench id={original === null ? "new" : "a"} initial={initial} templates={[]} original={original} />
    </QueryClientProvider>,
  );
}

async function write(text: string) {
  fireEvent.change(await screen.findByLabelText("YAML of the job"), { target: { value: text } });
}

beforeEach(() => {
  vi.mocked(planJob).mockResolvedValue({ data: PLAN } as never);
  vi.mocked(submitJob).mockResolvedValue({ data: { id: "made" } } as never);
  vi.mocked(cloneJob).mockResolvedValue({ data: { id: "made" } } as never);
});
afterEach(() => {
  sessionStorage.clear();
  vi.clearAllMocks();
});

describe("submitting", () => {
  it("sends what is written, and goes to the job", async () => {
    show();
    await write(`${TEXT}env: {SEED: "x"}\nlabels: {a: b}\n`);
    fireEvent.click(screen.getByRole("button", { name: "Submit job" }));
    await waitFor(() => expect(went).toHaveBeenCalledWith({ to: "/jobs/$job", params: { job: "made" } }));
    expect(calls(submitJob)[0]?.bodySerializer()).toBe(
      '{"name":"first","kind":"script","script":{"command":["train.py"]},"env":{"SEED":"x"},"labels":{"a":"b"}}',
    );
    expect(sessionStorage.length).toBe(0);
  });

  it("uses one key for one text, also after a reload, and another for another", async () => {
    vi.mocked(submitJob).mockRejectedValue(Failure.unreached());
    const { unmount } = show();
    const press = async (times: number) => {
      fireEvent.click(screen.getByRole("button", { name: "Submit job" }));
      await waitFor(() => expect(submitJob).toHaveBeenCalledTimes(times));
      await screen.findByRole("alert");
    };
    await press(1);
    await press(2);
    unmount();
    show();
    await press(3);
    await write(`${TEXT}priority: 60\n`);
    await press(4);
    const [one, two, three, four] = calls(submitJob).map(({ headers }) => headers["idempotency-key"]);
    expect(one).toMatch(/^[!-~]{16,200}$/);
    expect([two, three]).toEqual([one, one]);
    expect(four).not.toBe(one);
  });

  it("stays on the page when it is refused, and marks the line until the text changes", async () => {
    vi.mocked(submitJob).mockRejectedValue(refused);
    show();
    await screen.findByLabelText("YAML of the job");
    fireEvent.keyDown(window, { key: "Enter", ctrlKey: true });
    expect(await screen.findByRole("button", { name: "Go to line 1" })).toBeTruthy();
    expect(screen.getByText(/"line":1/).textContent).toContain("expected more: write more");
    expect(went).not.toHaveBeenCalled();
    await write(`${TEXT}priority: 60\n`);
    expect(screen.queryByRole("button", { name: "Go to line 1" })).toBeNull();
  });

  it("sends a clone as the values that changed, of the job it is a clone of", async () => {
    const job = { id: "a", name: "first", spec: { name: "first" } } as unknown as JobView;
    show({ job, text: readText(TEXT) });
    await write(TEXT.replace("[train.py]", "[train.py, --again]"));
    fireEvent.click(screen.getByRole("button", { name: "Submit clone" }));
    await waitFor(() => expect(went).toHaveBeenCalled());
    expect(calls(cloneJob)[0]?.path).toEqual({ reference: "a" });
    expect(calls(cloneJob)[0]?.bodySerializer()).toBe('{"set":{"/script/command":["train.py","--again"]}}');
    expect(submitJob).not.toHaveBeenCalled();
  });
});

describe("a clone whose text leaves a field out", () => {
  const job = { id: "a", name: "first", spec: { name: "first" } } as unknown as JobView;

  it("sends what leaving it out means in this text, also when the last plan is of an older one", async () => {
    vi.mocked(planJob).mockImplementation((async ({ bodySerializer }: Sent) => ({
      data: { ...PLAN, spec: { priority: 50, ...JSON.parse(bodySerializer()) } },
    })) as never);
    show({ job, text: readText(`${TEXT}priority: 70\n`) }, `${TEXT}priority: 70\n`);
    await waitFor(() => expect(planJob).toHaveBeenCalledTimes(1));
    await write(TEXT);
    fireEvent.click(screen.getByRole("button", { name: "Submit clone" }));
    await waitFor(() => expect(went).toHaveBeenCalled());
    expect(calls(cloneJob)[0]?.bodySerializer()).toBe('{"set":{"/priority":50}}');
  });

  it("is sent without a plan where none can be had, and not at all where the service is not reached", async () => {
    vi.mocked(planJob).mockRejectedValue(refused);
    show({ job, text: readText(TEXT) });
    await write(TEXT.replace("first", "second"));
    fireEvent.click(screen.getByRole("button", { name: "Submit clone" }));
    await waitFor(() => expect(went).toHaveBeenCalled());
    expect(calls(cloneJob)[0]?.bodySerializer()).toBe('{"set":{"/name":"second"}}');
    vi.mocked(planJob).mockRejectedValue(Failure.unreached());
    fireEvent.click(screen.getByRole("button", { name: "Submit clone" }));
    expect((await screen.findByRole("alert")).textContent).toContain("does not answer");
    expect(cloneJob).toHaveBeenCalledTimes(1);
  });
});

describe("the plan", () => {
  it("is asked for once typing stops, and a newer text aborts the older question", async () => {
    vi.mocked(planJob).mockImplementation((() => new Promise(() => {})) as never);
    show();
    await waitFor(() => expect(planJob).toHaveBeenCalledTimes(1));
    for (const priority of [1, 2, 3]) await write(`${TEXT}priority: ${priority}\n`);
    await waitFor(() => expect(planJob).toHaveBeenCalledTimes(2));
    const [first, second] = calls(planJob);
    expect(first?.signal.aborted).toBe(true);
    expect(second?.signal.aborted).toBe(false);
    expect(second?.bodySerializer()).toContain('"priority":3');
  });

  it("names the job that this one would wait for", async () => {
    const id = "01a201d5-ea7c-7168-88b5-5e795c97cceb";
    const queue = { position: 2, reason: `behind job ${id}`, estimated_start: null };
    vi.mocked(planJob).mockResolvedValue({ data: { ...PLAN, placement: [], queue } } as never);
    vi.mocked(getJob).mockResolvedValue({ data: { id, name: "gpt-large" } } as never);
    show();
    await waitFor(() => expect(screen.getByTestId("plan").textContent).toContain("behind job gpt-large"));
  });

  it("shows the memory once it is computed, and asks sooner until then", async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    const memory = (more: object) => ({ data: { ...PLAN, memory: { state: "known", source: "task", ...more } } });
    const parts = { weights: 1024, buffers: 0, gradients: 0, optimizer: 0, activations: 0, temporary: 0, buckets: 0 };
    vi.mocked(planJob)
      .mockResolvedValueOnce(memory({ state: "computing" }) as never)
      .mockResolvedValue(memory({ forecast: { ...parts, peak: 1024 }, micro_batch_size: 8 }) as never);
    show();
    await waitFor(() => expect(screen.getByTestId("plan").textContent).toContain("being computed"));
    await act(() => vi.advanceTimersByTimeAsync(3_000));
    await waitFor(() => expect(screen.getByTestId("plan").textContent).toContain("about 1.00 KiB on each device"));
    expect(screen.getByTestId("plan").textContent).toContain("computed from the task");
    vi.useRealTimers();
  });

  it("says what the service refuses, with its line", async () => {
    vi.mocked(planJob).mockRejectedValue(refused);
    show();
    expect(await screen.findByRole("button", { name: "Go to line 1" })).toBeTruthy();
    expect(screen.getByTestId("plan").textContent).toContain("would refuse");
  });

  it("is not asked for a text that is no document, which is marked", async () => {
    show();
    await waitFor(() => expect(planJob).toHaveBeenCalledTimes(1));
    await write("name: [\n");
    await waitFor(() => expect(screen.getByTestId("plan").textContent).toContain("not YAML"));
    expect(screen.getByRole<HTMLButtonElement>("button", { name: "Submit job" }).disabled).toBe(true);
    expect(planJob).toHaveBeenCalledTimes(1);
  });
});

describe("the text", () => {
  it("survives a reload, and can be begun anew and put back", async () => {
    const { unmount } = show();
    await write(`${TEXT}priority: 60\n`);
    unmount();
    show();
    const field = await screen.findByLabelText<HTMLTextAreaElement>("YAML of the job");
    expect(field.value).toContain("priority: 60");
    fireEvent.click(screen.getByRole("button", { name: "Start over" }));
    expect(field.value).toBe(TEXT);
    fireEvent.click(screen.getByRole("button", { name: "Put it back" }));
    expect(field.value).toContain("priority: 60");
  });
});
