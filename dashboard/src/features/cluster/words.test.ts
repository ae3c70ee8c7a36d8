import { describe, expect, it } from "vitest";
import type { DeviceView, NodeView } from "@/api/generated";
import { busyInWords, devicesInWords, meaning, memoryInWords } from "./words";

const GIB = 1_024 ** 3;

function node(part: Partial<NodeView>, devices: Partial<DeviceView>[] = []): NodeView {
  return {
    name: "gpu-a",
    state: "ready",
    seen_at: "2026-11-22T12:00:00Z",
    version: "0",
    devices_free: 0,
    ...part,
    devices: devices.map((device, index) => ({
      index,
      kind: "cuda",
      type: "NVIDIA H200",
      memory_bytes: 141 * GIB,
      job_id: null,
      ...device,
    })),
  };
}

describe("a node's state in words", () => {
  it("is not commented where it works", () => {
    expect(meaning(node({}))).toBeNull();
  });

  it("says when a draining node can be taken away", () => {
    expect(meaning(node({ state: "draining" }, [{}]))?.next).toMatch(/can be taken away now/);
    const held = meaning(node({ state: "draining" }, [{ job_id: "a" }, { job_id: "a" }, { job_id: "b" }]));
    expect(held?.means).toBe("It is given no more work. 2 jobs there run on.");
    expect(held?.next).toMatch(/when they have ended/);
    const foreign = meaning(node({ state: "draining" }, [{ held: true }]));
    expect(foreign?.means).toContain("Jobs there run on, also of other projects.");
    expect(foreign?.next).toMatch(/when they have ended/);
  });

  it("gives the service's reason for a quarantine", () => {
    const said = meaning(node({ state: "quarantined", reason: "it failed 2 jobs for its own reasons" }));
    expect(said?.means).toContain(": it failed 2 jobs for its own reasons. ");
    expect(said?.next).toMatch(/resume it/);
  });

  it("says that the agent of a leaving one was stopped", () => {
    const said = meaning(node({ state: "leaving" }, [{ job_id: "a" }]));
    expect(said?.means).toBe("Its agent was stopped, so it is given no more work. 1 job there runs on.");
    expect(said?.next).toMatch(/lockstep agent/);
  });

  it("says where to look for a lost one", () => {
    expect(meaning(node({ state: "lost" }))?.next).toMatch(/lockstep agent/);
  });
});

it("says which devices there are, each type once", () => {
  expect(devicesInWords(node({}, [{}, {}]))).toBe("2 × NVIDIA H200, 141 GiB each");
  expect(devicesInWords(node({}, [{}, { type: "cpu", memory_bytes: null }]))).toBe("1 × NVIDIA H200, 141 GiB; 1 × cpu");
  expect(devicesInWords(node({}))).toBe("");
});

it.each([
  [87.4, "cuda", "87 % GPU"],
  [0, "cuda", "0 % GPU"],
  [230.2, "cpu", "230 % CPU"],
  [0.098, "cpu", "under 1 % CPU"],
] as const)("%d of %s is %s", (value, kind, words) => {
  expect(busyInWords({ value, at: 0 }, kind)).toBe(words);
});

it.each([
  [120 * GIB, 141 * GIB, "120 of 141 GiB"],
  [400 * 1_024 ** 2, 141 * GIB, "400 MiB of 141 GiB"],
  [10.5 * 1_024 ** 2, null, "10.5 MiB"],
])("%d bytes of %d are %s", (value, total, words) => {
  expect(memoryInWords({ value, at: 0 }, total)).toBe(words);
});
