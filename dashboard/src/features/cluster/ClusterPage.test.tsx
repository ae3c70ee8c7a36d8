import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { NodeView } from "@/api/generated";
import { VIEWER } from "@/testing/caller";
import { aJob } from "@/testing/jobs";
import { type Asked, open, serve } from "@/testing/pages";
import { ClusterPage } from "./ClusterPage";

const HOLDER = aJob({
  id: "a",
  name: "gpt",
  owner: "lea",
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
    if (asked.method !== "GET")
      return { status: 404, body: { title: "Not found", detail: "there is no node 'gpu-a'" } };
    return { body: { items: nodes, next_cursor: null } };
  };
}

const rows = async () =>
  within(await screen.findByRole("table", { name: "Devices of gpu-a" }))
    .getAllByRole("row")
    .slice(1);

afterEach(() => vi.unstubAllGlobals());

it("shows what a node offers", async () => {
  serve(answer([{ ...node("ready"), offers: ["data:x", "kind:cuda"] }]));
  open("/cluster", ClusterPage);
  await screen.findByText("offers data:x, kind:cuda");
});

it("shows each device at its place, with its holder and what is used of it", async () => {
  const ready = node("ready");
  const since = new Date(Date.now() - 7_230_000).toISOString();
  const devices = ready.devices.map((device) => ({ ...device, free_since: device.job_id === null ? since : null }));
  const requests = serve(answer([{ ...ready, devices }]));
  open("/cluster", ClusterPage);
  await screen.findByText("93 % GPU");
  const found = await rows();
  expect(found.map((row) => row.firstElementChild?.textContent)).toEqual(["0", "1", "2"]);
  expect(
    within(found[0] as HTMLElement)
      .getByRole("link", { name: "gpt" })
      .getAttribute("href"),
  ).toBe("/jobs/a");
  expect(found[1]?.textContent).toMatch(/^1freefor 2 h/);
  expect(found[2]?.textContent).toContain("2 % GPU");
  expect(requests.map((asked) => asked.path).sort()).toEqual(["/v1/jobs", "/v1/nodes", "/v1/series", "/v1/session"]);
});

it("names owners, and hides the job of another project", async () => {
  const held = { ...node("ready"), devices: [{ ...node("ready").devices[2], held: true }] } as NodeView;
  serve(
    answer([
      { ...node("draining", "new fan."), drained_by: "ada", since: new Date().toISOString() },
      { ...held, name: "b" },
    ]),
  );
  open("/cluster", ClusterPage);
  expect((await rows()).map((row) => row.textContent?.includes("lea"))).toEqual([true, false, true]);
  expect(screen.getByText(/given no more work: new fan\. 1 job/).textContent).toContain("Drained by ada just now.");
  expect(screen.getByRole("table", { name: "Devices of b" }).textContent).toContain("a job of another project");
});

it("leads to the jobs that were placed on a node", async () => {
  serve(answer([node("ready")]));
  open("/cluster", ClusterPage);
  expect((await screen.findByRole("link", { name: "Jobs on this node" })).getAttribute("href")).toBe(
    "/jobs?node=gpu-a",
  );
});

it("warns of a device that is reserved but idle, and only of that", async () => {
  serve(answer([node("ready")]));
  open("/cluster", ClusterPage);
  expect(await screen.findByText("1 device is reserved but idle.")).toBeTruthy();
  const idle = (await rows()).map((row) => /idle for 10 min/.test(row.textContent ?? ""));
  expect(idle).toEqual([false, false, true]);
  expect(screen.getByText(/idle for 10 min/).title).toMatch(/^Under 5 % since \d{4}-/);
});

it("drains a node only after a question, and shows what the service refuses", async () => {
  const requests = serve(answer([node("ready")]));
  open("/cluster", ClusterPage);
  fireEvent.click(await screen.findByRole("button", { name: "Drain" }));
  const dialog = await screen.findByRole("dialog", { name: "Drain gpu-a" });
  await waitFor(() => expect(dialog.textContent).toContain("What runs there runs on: gpt."));
  expect(requests.some((asked) => asked.method === "POST")).toBe(false);
  fireEvent.click(within(dialog).getByRole("button", { name: "Drain gpu-a" }));
  fireEvent.change(within(dialog).getByLabelText("Reason"), { target: { value: "new fan" } });
  fireEvent.click(within(dialog).getByRole("button", { name: "Drain gpu-a" }));
  expect(await within(dialog).findByText("there is no node 'gpu-a'")).toBeTruthy();
  const asked = requests.filter(({ method }) => method === "POST");
  expect(asked.map(({ path, query }) => [path, query.get("reason")])).toEqual([["/v1/nodes/gpu-a/drain", "new fan"]]);
});

it("offers no change to who may make none", async () => {
  const asked: string[] = [];
  serve((request) => {
    asked.push(request.path);
    return request.path === "/v1/session" ? { body: VIEWER } : answer([node("ready")])(request);
  });
  open("/cluster", ClusterPage);
  await screen.findByRole("link", { name: "Jobs on this node" });
  await waitFor(() => expect(asked).toContain("/v1/session"));
  expect(screen.queryByRole("button", { name: "Drain" })).toBeNull();
});

it.each([
  ["Resume", "quarantined", /it failed 2 jobs for its own reasons/, "POST /v1/nodes/gpu-a/resume"],
  ["Remove", "lost", /Remove it if it is gone for good/, "DELETE /v1/nodes/gpu-a"],
] as const)("offers %s for a node that is %s, and shows a refusal", async (name, state, words, change) => {
  const requests = serve(answer([node(state, "it failed 2 jobs for its own reasons")]));
  open("/cluster", ClusterPage);
  expect(await screen.findByText(words)).toBeTruthy();
  fireEvent.click(await screen.findByRole("button", { name }));
  expect(await screen.findByText("there is no node 'gpu-a'")).toBeTruthy();
  const changes = requests.filter(({ method }) => method !== "GET").map(({ method, path }) => `${method} ${path}`);
  expect(changes).toEqual([change]);
});
