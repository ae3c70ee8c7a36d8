import { describe, expect, it } from "vitest";
import type { NodeView } from "@/api/generated";
import { asksFor, freeSentence } from "./resources";

describe("what a spec asks for", () => {
  it.each([
    [{}, "1 device"],
    [{ resources: { gpus: 8 } }, "8 devices"],
    [{ resources: { gpus: 16, gpu_type: "NVIDIA H200", nodes: 2 } }, "16 × NVIDIA H200 on 2 nodes"],
    [{ resources: { gpus: { min: 1, max: 8 } } }, "1 to 8 devices"],
    [{ resources: { gpus: 1, gpu_type: "cpu", nodes: 1 } }, "1 × cpu"],
    [{ resources: { needs: ["data:x"] } }, "1 device on a node that offers data:x"],
    [{ resources: { gpus: 2, nodes: 2, needs: ["a", "b"] } }, "2 devices on 2 nodes that offer a, b"],
  ])("%j is %s", (spec, words) => {
    expect(asksFor(spec)).toBe(words);
  });
});

function node(state: NodeView["state"], devices: [type: string, job: string | null][]): NodeView {
  return {
    name: "n",
    state,
    seen_at: "2026-11-22T12:00:00Z",
    version: "0",
    devices: devices.map(([type, job_id], index) => ({ index, kind: "cuda", type, memory_bytes: null, job_id })),
    devices_free: devices.filter(([, job]) => job === null).length,
  };
}

describe("what is free", () => {
  it("says so when there is no node", () => {
    expect(freeSentence([])).toBe("No node is registered: nothing can start.");
  });

  it("counts no device of another project", () => {
    const shared = node("ready", [
      ["cpu", null],
      ["gpu", null],
      ["gpu", null],
    ]);
    const devices = shared.devices.map((device, index) => ({ ...device, held: index === 2 }));
    const words = freeSentence([{ ...shared, devices, devices_free: 2 }]);
    expect(words).toBe("2 of 3 devices are free: 1 cpu, 1 gpu.");
  });

  it("counts over all nodes", () => {
    const nodes = [
      node("ready", [
        ["cpu", null],
        ["cpu", "a"],
      ]),
      node("ready", [["cpu", null]]),
    ];
    expect(freeSentence(nodes)).toBe("2 of 3 devices are free.");
  });

  it("tells types apart where there are several", () => {
    const nodes = [
      node("ready", [
        ["NVIDIA H200", null],
        ["NVIDIA H200", null],
      ]),
      node("ready", [["cpu", null]]),
    ];
    expect(freeSentence(nodes)).toBe("3 of 3 devices are free: 2 NVIDIA H200, 1 cpu.");
  });

  it("does not call free what a closed node has", () => {
    const nodes = [
      node("ready", [["cpu", null]]),
      node("draining", [
        ["cpu", null],
        ["cpu", "a"],
      ]),
      node("lost", []),
    ];
    expect(freeSentence(nodes)).toBe("1 of 3 devices is free. 2 nodes take no work, with 1 device that nobody holds.");
  });

  it("says nothing of unheld devices where the closed node is full", () => {
    expect(freeSentence([node("quarantined", [["cpu", "a"]])])).toBe("0 of 1 device are free. 1 node takes no work.");
  });
});
