import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { NodeView } from "@/api/generated";
import { VIEWER } from "@/testing/caller";
import { aJob } from "@/testing/jobs";
import { type Asked, open, serve } from "@/testing/pages";
import { NodesPage } from "./NodesPage";

const HOLDER = aJob({
  id: "a",
  name: "gpt",
  attempt: {
    number: 1,
    state: "running",
    nodes: ["gpu-a"],
    world_size: 2,
    outcome: null,
    created_at: "2020-01-01T12:00:00Z",
    running_at: null,
    ended_at: null,
  },
});

function node(state: NodeView["state"], reason: string | null = null): NodeView {
  const device = (index: number, job_id: string | null) =>
    ({ index, kind: "cuda", type: "NVIDIA H200", memory_bytes: 141 * 1_024 ** 3, job_id }) as const;
  return {
    name: "gpu-a",
    state,
    reason,
    seen_at: new Date().toISOString(),
    version: "0",
    devices: [device(2, "a"), device(0, "a"), device(1, null)],
    devices_free: 1,
  };
}

/** Rank 0 works; rank 1 did nothing for ten minutes. */
function series({ query }: Asked) {
  const time = Array.from({ length: 61 }, (_, place) => Date.now() / 1_000 - 600 + 10 * place);
  const named = query.getAll("names").filter((name) => name.endsWith("gpu_utilization_percent"));
  const of = (name: string) => {
    const value = time.map(() => (name.includes("rank0") ? 93 : 2));
    return { name, unit: "%", attempt: 1, count: 61, step: time, time, value, min: value, max: value };
  };
  return { body: { jobs: [{ job_id: "a", series: named.map(of) }] } };
}

function answer(nodes: NodeView[]) {
  return (asked: Asked) => {
    if (asked.path === "/v1/series") return series(asked);
    if (asked.path === "/v1/jobs") return { body: { items: [HOLDER], next_cursor: null } };
    if (asked.method === "POST")
      return { status: 404, body: { title: "Not found", detail: "there is no node 'gpu-a'" } };
    return { body: { items: nodes, next_cursor: null } };
  };
}

const cells = async () =>
  within(await screen.findByRole("list", { name: "Devices of gpu-a" })).getAllByRole("listitem");

afterEach(() => vi.unstubAllGlobals());

it("shows what a node offers", async () => {
  serve(answer([{ ...node("ready"), offers: ["data:x", "kind:cuda"] }]));
  open("/nodes", NodesPage);
  await screen.findByText("offers data:x, kind:cuda");
});

it("shows each device at its place, with its holder and what is used of it", async () => {
  const requests = serve(answer([node("ready")]));
  open("/nodes", NodesPage);
  await screen.findByText("93 % GPU");
  const found = await cells();
  expect(found.map((cell) => cell.firstElementChild?.textContent || cell.children[1]?.textContent)).toEqual([
    "0",
    "1",
    "2",
  ]);
  expect(
    within(found[0] as HTMLElement)
      .getByRole("link", { name: "gpt" })
      .getAttribute("href"),
  ).toBe("/jobs/a");
  expect(found[1]?.textContent).toContain("free");
  expect(found[2]?.textContent).toContain("2 % GPU");
  expect(requests.map((asked) => asked.path).sort()).toEqual(["/v1/jobs", "/v1/nodes", "/v1/series", "/v1/session"]);
});

it("leads to the jobs that were placed on a node", async () => {
  serve(answer([node("ready")]));
  open("/nodes", NodesPage);
  expect((await screen.findByRole("link", { name: "Jobs on this node" })).getAttribute("href")).toBe(
    "/jobs?node=gpu-a",
  );
});

it("warns of a device that is reserved but idle, and only of that", async () => {
  serve(answer([node("ready")]));
  open("/nodes", NodesPage);
  expect(await screen.findByText("1 device is reserved but idle.")).toBeTruthy();
  const idle = (await cells()).map((cell) => /idle: under 5 % for 10 min/.test(cell.textContent ?? ""));
  expect(idle).toEqual([false, false, true]);
});

it("drains a node only after a question, and shows what the service refuses", async () => {
  const requests = serve(answer([node("ready")]));
  open("/nodes", NodesPage);
  fireEvent.click(await screen.findByRole("button", { name: "Drain" }));
  const dialog = await screen.findByRole("dialog", { name: "Drain gpu-a" });
  await waitFor(() => expect(dialog.textContent).toContain("What runs there runs on: gpt."));
  expect(requests.some((asked) => asked.method === "POST")).toBe(false);
  fireEvent.click(within(dialog).getByRole("button", { name: "Drain gpu-a" }));
  expect(await within(dialog).findByText("there is no node 'gpu-a'")).toBeTruthy();
  expect(requests.filter((asked) => asked.method === "POST").map((asked) => asked.path)).toEqual([
    "/v1/nodes/gpu-a/drain",
  ]);
});

it("offers no change to who may make none", async () => {
  const asked: string[] = [];
  serve((request) => {
    asked.push(request.path);
    return request.path === "/v1/session" ? { body: VIEWER } : answer([node("ready")])(request);
  });
  open("/nodes", NodesPage);
  await screen.findByRole("link", { name: "Jobs on this node" });
  await waitFor(() => expect(asked).toContain("/v1/session"));
  expect(screen.queryByRole("button", { name: "Drain" })).toBeNull();
});

it("resumes a quarantined node, whose reason it shows", async () => {
  const requests = serve(answer([node("quarantined", "it failed 2 jobs for its own reasons")]));
  open("/nodes", NodesPage);
  expect(await screen.findByText(/it failed 2 jobs for its own reasons/)).toBeTruthy();
  fireEvent.click(await screen.findByRole("button", { name: "Resume" }));
  expect(await screen.findByText("there is no node 'gpu-a'")).toBeTruthy();
  expect(requests.filter((asked) => asked.method === "POST").map((asked) => asked.path)).toEqual([
    "/v1/nodes/gpu-a/resume",
  ]);
});
