import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { getSeries } from "@/api/generated";
import type { JobOfCharts } from "@/api/series";
import type { Mark } from "@/lib/marks";
import { job, serveCurves, show } from "@/testing/charts";

vi.mock("@/api/generated");
vi.mock("./Plot", () => import("@/testing/plot"));
beforeEach(serveCurves);

const text = (id: string, size: number): JobOfCharts => ({
  ...job(id),
  plan: { batch_size: size },
  spec: { train: { task: "causal_lm", task_args: { context: 100 } } },
});
const offered = () =>
  within(screen.getByLabelText("Across"))
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
  await screen.findByLabelText("Across");
  expect(offered()).toEqual(["step", "samples", "tokens", "relative time", "wall time"]);
  fireEvent.change(screen.getByLabelText("Across"), { target: { value: "tokens" } });
  await screen.findAllByRole("button", { name: /^Line chart of train\/loss over tokens/ });
  first.unmount();
  show([text("a", 64), script]);
  await screen.findAllByRole("button", { name: /^Line chart of train\/loss over steps/ });
  expect(offered()).toEqual(["step", "relative time", "wall time"]);
});

it("asks for the same steps whatever a step is counted in, and keeps the zoom from one to the other", async () => {
  show([text("a", 10)]);
  fireEvent.change(await screen.findByLabelText("Across"), { target: { value: "samples" } });
  const card = await screen.findByRole("article", { name: /train\/loss/ });
  fireEvent.click(await within(card).findByRole("button", { name: /^Line chart/ }));
  await waitFor(() => expect(zoomedTo()).toEqual([10, 20]));
  fireEvent.change(screen.getByLabelText("Across"), { target: { value: "step" } });
  expect(screen.getByRole("button", { name: "Reset zoom" })).toBeDefined();
  await waitFor(() => expect(zoomedTo()).toEqual([10, 20]));
  fireEvent.change(screen.getByLabelText("Across"), { target: { value: "wall" } });
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
