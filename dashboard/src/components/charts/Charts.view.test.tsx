import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { getSeries } from "@/api/generated";
import type { JobOfCharts } from "@/api/series";
import type { Mark } from "@/lib/marks";
import { job, serveCurves, serveSeries, show } from "@/testing/charts";
import { summary } from "@/testing/series";
import { view } from "@/testing/views";

vi.mock("@/api/generated");
vi.mock("./Plot", () => import("@/testing/plot"));
beforeEach(serveCurves);

const text = (id: string, size: number): JobOfCharts => ({
  ...job(id),
  plan: { batch_size: size },
  spec: { train: { task: "causal_lm", task_args: { context: 100 } } },
});
const offered = () =>
  within(screen.getByLabelText("x axis"))
    .getAllByRole("option")
    .map((option) => option.textContent);
const zoomedTo = () =>
  vi
    .mocked(getSeries)
    .mock.calls.flatMap(([{ query }]) => (query.from_step == null ? [] : [[query.from_step, query.to_step]]))
    .at(-1);

it("offers samples and tokens where all drawn jobs have them, and goes by steps where what is kept is not offered", async () => {
  const script = job("b");
  const first = show([text("a", 64), script], new Set(["b"]));
  await screen.findByLabelText("x axis");
  expect(offered()).toEqual(["step", "samples", "tokens", "relative time", "wall time"]);
  fireEvent.change(screen.getByLabelText("x axis"), { target: { value: "tokens" } });
  await screen.findAllByRole("button", { name: /^Line chart of train\/loss over tokens/ });
  first.unmount();
  show([text("a", 64), script]);
  await screen.findAllByRole("button", { name: /^Line chart of train\/loss over steps/ });
  expect(offered()).toEqual(["step", "fraction of the run", "relative time", "wall time"]);
});

it("asks for the same steps whatever a step is counted in, and keeps the zoom from one to the other", async () => {
  show([text("a", 10)]);
  fireEvent.change(await screen.findByLabelText("x axis"), { target: { value: "samples" } });
  const card = await screen.findByRole("article", { name: /train\/loss/ });
  fireEvent.click(await within(card).findByRole("button", { name: /^Line chart/ }));
  await waitFor(() => expect(zoomedTo()).toEqual([10, 20]));
  fireEvent.change(screen.getByLabelText("x axis"), { target: { value: "step" } });
  expect(screen.getByRole("button", { name: "Reset zoom" })).toBeDefined();
  await waitFor(() => expect(zoomedTo()).toEqual([10, 20]));
  fireEvent.change(screen.getByLabelText("x axis"), { target: { value: "wall" } });
  expect(screen.queryByRole("button", { name: "Reset zoom" })).toBeNull();
});

it("explains the marks of one job, and takes them away", async () => {
  const marks: Mark[] = [
    { kind: "checkpoint", attempt: 1, at: 5, step: 5, words: "" },
    { kind: "restart", attempt: 2, at: 9, step: 5, words: "" },
    { kind: "checkpoint", attempt: 2, at: 12, step: 12, words: "" },
  ];
  const first = show([job("a")], undefined, marks);
  await screen.findByRole("button", { name: /^Line chart of train\/loss.* Marked: 1 restart, 2 checkpoints\.$/ });
  const legend = screen.getByRole("list", { name: "Marks below the curves" });
  expect(within(legend).getAllByRole("listitem")).toHaveLength(2);
  fireEvent.click(screen.getByRole("checkbox", { name: "Marks" }));
  expect(screen.queryByRole("list", { name: "Marks below the curves" })).toBeNull();
  expect(screen.queryByRole("button", { name: /Marked/ })).toBeNull();
  first.unmount();
  localStorage.clear();
  show([job("a"), job("b")], undefined, marks);
  await screen.findByRole("button", { name: /^Line chart of train\/loss/ });
  expect(screen.queryByRole("checkbox", { name: "Marks" })).toBeNull();
});

it("zooms without a mouse on the whole screen: by buttons and by keys", async () => {
  show([job("a")]);
  const card = await screen.findByRole("article", { name: /train\/loss/ });
  await within(card).findByRole("button", { name: /^Line chart/ });
  fireEvent.click(within(card).getByRole("button", { name: "Show train/loss on the whole screen" }));
  const dialog = await screen.findByRole("dialog");
  fireEvent.click(within(dialog).getByRole("button", { name: "Zoom in" }));
  // Of steps 0 to 999.
  await waitFor(() => expect(zoomedTo()).toEqual([249, 750]));
  fireEvent.keyDown(dialog, { key: "ArrowRight" });
  await waitFor(() => expect(zoomedTo()).toEqual([374, 875]));
  fireEvent.keyDown(dialog, { key: "-" });
  await waitFor(() =>
    expect(within(dialog).getByRole("button", { name: "Reset zoom" }).getAttribute("aria-disabled")).toBe("true"),
  );
});

it("draws what machines report over time, whatever the axis of the steps, and says that the job reports nothing", async () => {
  const clocked = { group: "system", axis: "time" } as const;
  serveSeries([summary("system/node0/cpu_percent", clocked), summary("system/node0/memory", clocked)]);
  show([job("a", "running")]);
  expect(await screen.findByText("No points yet")).toBeDefined();
  expect(screen.getByText(/"loss": 1.5/).textContent).toContain("$LOCKSTEP_METRICS");
  // There is nothing else to see, so the group is not folded.
  await screen.findByRole("button", { name: /^Line chart of system\/node0\/cpu_percent over time since the start/ });
});

it("keeps the axis of the machines to time beside charts over steps, each with its own zoom", async () => {
  show([job("a")]);
  fireEvent.click(await screen.findByRole("button", { name: /system 1/ }));
  const machine = await screen.findByRole("button", {
    name: /^Line chart of system\/node0\/cpu_percent over time since the start/,
  });
  await screen.findByRole("button", { name: /^Line chart of train\/loss over steps/ });
  fireEvent.click(machine);
  expect(screen.getByRole("button", { name: "Reset zoom" })).toBeDefined();
  fireEvent.change(screen.getByLabelText("x axis"), { target: { value: "wall" } });
  await screen.findByRole("button", { name: /^Line chart of system\/node0\/cpu_percent over time\./ });
});

it("shows twelve charts of a large group, and the others when asked", async () => {
  const names = Array.from({ length: 30 }, (_, layer) => `layer.${layer}/norm`);
  serveSeries(names.map((name) => summary(name, { group: "layer" })));
  show([job("a")]);
  await screen.findByRole("button", { name: /layer 30/ });
  expect(screen.getAllByRole("article")).toHaveLength(12);
  fireEvent.click(screen.getByRole("button", { name: "Show all 30 charts of layer" }));
  expect(screen.getAllByRole("article")).toHaveLength(30);
});

it("offers to clip outliers, and a range of y that is typed", async () => {
  vi.mocked(getSeries).mockImplementation((({ query }: { query: { jobs: string[]; names: string[] } }) =>
    Promise.resolve({
      data: {
        jobs: query.jobs.map((job_id) => ({
          job_id,
          cursor: "",
          complete: true,
          series: query.names.map((name) => {
            const spiky = view(name, 100);
            const value = spiky.value.map((_, at) => (at === 50 ? 1e6 : 1 + (at % 7) / 7));
            return { ...spiky, value, min: value, max: value };
          }),
        })),
      },
    })) as never);
  show([job("a")]);
  const card = await screen.findByRole("article", { name: /train\/loss/ });
  const clip = await within(card).findByRole("button", { name: "Clip 1 outlier" });
  fireEvent.click(clip);
  expect(within(card).getByRole("button", { name: "1 outlier clipped" }).getAttribute("aria-pressed")).toBe("true");
  // Of this chart only.
  const other = screen.getByRole("article", { name: /train\/grad_norm/ });
  fireEvent.click(within(card).getByRole("button", { name: "1 outlier clipped" }));
  expect(await within(other).findByRole("button", { name: "Clip 1 outlier" })).toBeDefined();
  fireEvent.click(within(card).getByRole("button", { name: "Show train/loss on the whole screen" }));
  const dialog = await screen.findByRole("dialog");
  fireEvent.change(within(dialog).getByLabelText("Lowest value of the y axis"), { target: { value: "0" } });
  fireEvent.change(within(dialog).getByLabelText("Highest value of the y axis"), { target: { value: "2.5" } });
  expect(within(card).getByRole("button", { name: "y 0 to 2.5 ×" })).toBeDefined();
  fireEvent.click(within(dialog).getByRole("button", { name: "Auto" }));
  expect(within(card).queryByRole("button", { name: /^y 0/ })).toBeNull();
});
