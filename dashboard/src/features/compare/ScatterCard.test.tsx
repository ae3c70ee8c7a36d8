import { fireEvent, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { aJob } from "@/testing/jobs";
import { open } from "@/testing/pages";
import type { Run } from "./runs";
import { ScatterCard } from "./ScatterCard";
import type { Scale, Scatter } from "./scatter";

const AXIS: Scale = { title: "loss", isLog: false, range: [0, 1], ticks: [] };
/** One near the top of the drawing, one near its bottom: it has no width here. */
const SCATTER: Scatter = {
  dots: ["low", "high"].map((id, y) => ({ run: { job: aJob({ id, name: id }) } as Run, x: 0, y, value: "0" })),
  x: AXIS,
  y: AXIS,
  left: 0,
};
const LOW = 220;

async function shown() {
  const router = open("/", () => <ScatterCard scatter={SCATTER} slots={new Map()} hot={null} onHot={() => {}} />);
  const drawing = await screen.findByRole("application");
  const press = (pointerType: string, clientY: number) => {
    // A finger leaves when it is lifted, before the click.
    for (const name of pointerType === "mouse" ? ["down", "up"] : ["down", "up", "out"]) {
      const event = new Event(`pointer${name}`, { bubbles: true });
      fireEvent(drawing, Object.assign(event, { pointerType, clientX: 56, clientY }));
    }
    fireEvent.click(drawing);
  };
  return { press, path: () => router.state.location.pathname };
}

it("reads a point at the first tap and opens its run at the second", async () => {
  const { press, path } = await shown();
  press("touch", LOW);
  expect(screen.getByText("low: loss 0, loss 0")).toBeTruthy();
  press("touch", 0);
  expect(screen.getByText("high: loss 0, loss 1")).toBeTruthy();
  expect(path()).toBe("/");
  press("touch", 0);
  await expect.poll(path).toBe("/jobs/high");
});

it("opens the run under a mouse at once", async () => {
  const { press, path } = await shown();
  press("mouse", LOW);
  await expect.poll(path).toBe("/jobs/low");
});
