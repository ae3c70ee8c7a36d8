import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, screen } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, expect, it, vi } from "vitest";
import type { EventView, JobView } from "@/api/generated";
import { knowEvents } from "@/testing/live";
import { render } from "@/testing/render";
import { OverviewTab } from "./OverviewTab";

vi.mock("@/api/generated", () => ({ listJobAttempts: vi.fn() }));
vi.mock("./ChartsPanel", () => ({ ChartsPanel: () => null }));
vi.mock("@tanstack/react-router", () => ({
  Link: ({ search, children }: { search: object; children: ReactNode }) => (
    <a href={JSON.stringify(search)}>{children}</a>
  ),
}));

const JOB = {
  id: "01a201d5-ea7c-7168-88b5-5e795cf0ebe0",
  kind: "script",
  state: "running",
  attempt: { number: 2, nodes: ["atlas"], world_size: 1 },
  version: 3,
} as unknown as JobView;
const MESSAGE = "No output and no metric for 10 minutes, and the devices are idle: rank 0 is at train.py line 3.";

function event(id: number, kind: string, attempt = 2, node = "atlas"): EventView {
  const data = { node, ranks: [0], stacks: "rank 0:\n  main thread" };
  return { id, kind, attempt, data, at: "2026-01-01T00:10:00Z", actor: "node:atlas", message: MESSAGE };
}

async function show(job: JobView, ...events: EventView[]) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  await knowEvents(client, job, events);
  render(
    <QueryClientProvider client={client}>
      <OverviewTab job={job} reference="digits" controls={null} />
    </QueryClientProvider>,
  );
  return screen.queryAllByRole("status").map(({ textContent }) => textContent);
}

afterEach(cleanup);

it("says that a script is silent, with its stacks and the way to its log", async () => {
  const [notice, ...others] = await show(JOB, event(1, "running"), event(2, "silent"));
  expect(others).toEqual([]);
  expect(notice).toContain(`Silent on atlas${MESSAGE}`);
  expect(notice).toContain("rank 0:\n  main thread");
  expect(screen.getByText("Stacks in the logs").getAttribute("href")).toBe(
    JSON.stringify({ tab: "logs", stream: "launcher", attempt: 2 }),
  );
});

it("says nothing once the script writes again, and something when it falls silent another time", async () => {
  const ended = [event(1, "silent"), event(2, "output_again")];
  expect(await show(JOB, ...ended)).toEqual([]);
  cleanup();
  expect(await show(JOB, ...ended, event(3, "silent"))).toHaveLength(1);
});

it("tells one node from another", async () => {
  const notices = await show(JOB, event(1, "silent"), event(2, "silent", 2, "borea"), event(3, "output_again"));
  expect(notices.map((text) => text?.slice(0, 15))).toEqual(["Silent on borea"]);
});

it("says nothing of an earlier attempt", async () => {
  expect(await show(JOB, event(1, "silent", 1), event(2, "running"))).toEqual([]);
});
