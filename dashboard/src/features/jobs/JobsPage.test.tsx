import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { answer, CURSOR, JOBS, page, row } from "@/testing/listed-jobs";
import { serve } from "@/testing/pages";

beforeEach(() => {
  Element.prototype.scrollIntoView = vi.fn();
});
afterEach(() => vi.unstubAllGlobals());

describe("a row", () => {
  beforeEach(() => void serve(answer));

  it("says why a queued job waits, at which place, and when it is likely to start", async () => {
    page();
    const waits = await row("waits");
    expect(waits.textContent).toContain("#3 behind job x, which is larger");
    expect(within(waits).getByTitle("starts any moment now").textContent).toBe("now");
    expect(within(await row("runs")).queryByTitle(/^starts/)).toBeNull();
  });

  it("leads to the jobs of its owner, its project and its labels, and has no name where the service gives none", async () => {
    page("?state=running&filter=gpt");
    const links = within(await row("runs")).getAllByRole("link");
    const search = (text: string) =>
      new URLSearchParams(
        links
          .find((link) => link.textContent === text)
          ?.getAttribute("href")
          ?.split("?")[1],
      );
    expect([search("ada").get("owner"), search("ada").get("state")]).toEqual(["ada", '["running"]']);
    expect(search("default").get("project")).toBe("default");
    expect(search("team=nlp").get("filter")).toBe("gpt label:team=nlp");
    expect(within(await row("broke")).queryByTitle(/^Jobs of (?!project)/)).toBeNull();
  });

  it("has progress and time left of a running one, and a metric that is no number by name", async () => {
    page();
    const runs = await row("runs");
    expect(within(runs).getByTitle("5 / 10 steps").textContent).toBe("50 %");
    for (const words of ["1 min 30 s", "NaN"]) expect(runs.textContent).toContain(words);
    expect(runs.querySelectorAll("time[title]")).toHaveLength(1);
  });

  it("says why a job failed, and has a bar only while it runs", async () => {
    page();
    expect((await row("broke")).textContent).toContain("user error script exited with code 1 on rank 1");
    expect(within(await row("broke")).queryByText(/%/)).toBeNull();
  });
});

it("tells a first visitor what to do", async () => {
  serve(() => ({ body: { items: [], next_cursor: null } }));
  page();
  expect(await screen.findByText("lockstep submit examples/gpt.yaml")).toBeTruthy();
  expect(screen.getByRole("link", { name: "Write the first job here" }).getAttribute("href")).toBe("/submit");
});

it("says of how many jobs a page is, and leads to the next one and back", async () => {
  const totals = { states: { running: 2, failed: 1 }, gpus_in_use: 12 };
  serve((asked) => {
    const isNext = asked.query.has("cursor");
    const jobs = isNext ? JOBS.slice(2) : JOBS.slice(0, 2);
    if (asked.path !== "/v1/jobs") return answer(asked);
    return { body: { items: jobs, next_cursor: isNext ? null : CURSOR, total: 1_250, totals } };
  });
  const router = page("?filter=gpt");
  expect(await screen.findByText("2 of 1,250 jobs")).toBeTruthy();
  expect(screen.getByText("2 running, 1 failed · 12 GPUs in use")).toBeTruthy();
  await waitFor(() => expect(document.title).toBe("2 running · Jobs · Lockstep"));
  fireEvent.click(screen.getByRole("link", { name: "Next →" }));
  await row("broke");
  await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpt", cursor: CURSOR }));
  fireEvent.click(await screen.findByRole("button", { name: "← Previous" }));
  await row("waits");
  expect(router.state.location.search).toEqual({ filter: "gpt" });
});
