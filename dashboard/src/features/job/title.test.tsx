// @vitest-environment jsdom

import { beforeEach, describe, expect, it } from "vitest";
import type { JobState, Progress, QueuePlace } from "@/api/generated";
import { usePageIcon, usePageTitle } from "@/components/usePageTitle";
import { aJob } from "@/testing/jobs";
import { render } from "@/testing/render";
import { jobTitle } from "./title";

const progress = { step: 341, steps: 1_000, fraction: 0.349 } as Progress;

describe("the title of a job's page", () => {
  it("begins with the name, the state and the progress", () => {
    expect(jobTitle(aJob({ progress }))).toEqual(["gpt", "running 34 %"]);
    expect(jobTitle(aJob())).toEqual(["gpt", "running"]);
    expect(jobTitle(aJob({ state: "failed", progress }))).toEqual(["gpt", "failed"]);
  });

  it("says the place of a job that waits, and the open part", () => {
    const waiting = aJob({ state: "queued", queue: { position: 3 } as QueuePlace });
    expect(jobTitle(waiting, "logs")).toEqual(["gpt", "queued #3", "Logs"]);
  });
});

describe("the tab of the browser", () => {
  beforeEach(() => {
    document.head.innerHTML = "<title>Lockstep</title><link rel='icon' href='/mark.svg' />";
  });
  const icon = () => decodeURIComponent(document.querySelector("link[rel='icon']")?.getAttribute("href") ?? "");

  function Page({ state, fraction }: { state?: JobState; fraction?: number }) {
    usePageTitle("gpt", state ?? "");
    usePageIcon(state, fraction);
    return null;
  }

  it("has another icon for each state and progress, and is as before when the page is left", () => {
    const page = render(<Page state="running" />);
    expect(document.title).toBe("gpt · running · Lockstep");
    const seen = [icon()];
    for (const state of ["queued", "starting", "paused", "succeeded", "failed", "cancelled"] as const) {
      page.rerender(<Page state={state} />);
      seen.push(icon());
    }
    for (const fraction of [0.3, 0.9]) {
      page.rerender(<Page state="running" fraction={fraction} />);
      seen.push(icon());
    }
    expect(new Set(seen).size).toBe(9);
    for (const href of seen) expect(href).toMatch(/^data:image\/svg\+xml,<svg/);
    page.rerender(<Page state="failed" />);
    page.unmount();
    expect([document.title, icon()]).toEqual(["Lockstep", "/mark.svg"]);
  });
});
