import { describe, expect, it } from "vitest";
import type { NodeView, SeriesView } from "@/api/generated";
import { aJob } from "@/testing/jobs";
import { idleSeconds, machineOf, rankOn, seriesAsked, takenBy } from "./measured";

function node(name: string, holders: (string | null)[], kind: "cuda" | "cpu" = "cuda"): NodeView {
  return {
    name,
    state: "ready",
    seen_at: "2026-11-22T12:00:00Z",
    version: "0",
    devices: holders.map((job_id, index) => ({ index, kind, type: kind, memory_bytes: null, job_id })),
    devices_free: holders.filter((one) => one === null).length,
  };
}

function holder(id: string, nodes: string[], worldSize: number) {
  return aJob({
    id,
    attempt: {
      number: 1,
      state: "running",
      nodes,
      world_size: worldSize,
      outcome: null,
      created_at: "1970-01-01T00:01:40Z",
      running_at: null,
      ended_at: null,
    },
  });
}

function series(name: string, points: [time: number, value: number | string][]): SeriesView {
  const value = points.map((point) => point[1]);
  const time = points.map((point) => point[0]);
  return {
    name,
    unit: "",
    attempt: 1,
    count: points.length,
    step: time.map(() => 7),
    time,
    value,
    min: value,
    max: value,
  };
}

describe("the rank on a device", () => {
  it("goes by the order of the job's nodes, then of the devices it holds there", () => {
    const job = holder("a", ["east", "west"], 4);
    const east = node("east", ["b", "a", null, "a"]);
    const west = node("west", ["a", "a"]);
    const ranks = [east, west].flatMap((one) => one.devices.map((device) => rankOn(job, one, device.index)));
    expect(ranks).toEqual([null, 0, null, 1, 2, 3]);
  });

  it("is the same however the service orders the devices", () => {
    const job = holder("a", ["east"], 3);
    const east = node("east", ["a", "a", "a"]);
    east.devices.reverse();
    expect([0, 1, 2].map((index) => rankOn(job, east, index))).toEqual([0, 1, 2]);
  });

  it("is none on a device that the job holds and runs nothing on, and after the attempt", () => {
    const job = holder("a", ["east"], 1);
    const east = node("east", ["a", "a"]);
    expect([0, 1].map((index) => rankOn(job, east, index))).toEqual([0, null]);
    const ended = aJob({ ...job, attempt: job.attempt && { ...job.attempt, state: "ended" } });
    expect(rankOn(ended, east, 0)).toBeNull();
    expect(rankOn(aJob({ id: "a" }), east, 0)).toBeNull();
  });
});

it("asks for each series once, and only for those that the kinds of devices have", () => {
  const jobs = new Map([
    ["a", holder("a", ["east"], 2)],
    ["b", holder("b", ["west"], 1)],
  ]);
  const asked = seriesAsked([node("east", ["a", "a", "gone"]), node("west", ["b", null], "cpu")], jobs);
  expect(asked.jobs).toEqual(["a", "b"]);
  expect(asked.names).toEqual([
    "system/node0/cpu_percent",
    "system/node0/memory_bytes",
    ...[
      "system/rank0/cpu_percent",
      "system/rank0/gpu_memory_bytes",
      "system/rank0/gpu_power_watts",
      "system/rank0/gpu_temperature_celsius",
      "system/rank0/gpu_utilization_percent",
      "system/rank0/rss_bytes",
    ],
    "system/rank1/gpu_memory_bytes",
    "system/rank1/gpu_power_watts",
    "system/rank1/gpu_temperature_celsius",
    "system/rank1/gpu_utilization_percent",
  ]);
});

describe("what a rank takes of its device", () => {
  const job = holder("a", ["east"], 2);
  it("is the newest sample of its own series", () => {
    const found = takenBy(job, 1, "cuda", [
      series("system/rank0/gpu_utilization_percent", [[200, 1]]),
      series("system/rank1/gpu_utilization_percent", [
        [200, 1],
        [210, 87],
      ]),
      series("system/rank1/gpu_temperature_celsius", [[210, 61]]),
    ]);
    expect(found).toEqual({
      percent: { value: 87, at: 210 },
      memoryBytes: null,
      watts: null,
      celsius: { value: 61, at: 210 },
      idleSeconds: 0,
    });
  });

  it("is nothing while only an attempt before has samples", () => {
    const found = takenBy(job, 0, "cuda", [
      series("system/rank0/gpu_utilization_percent", [
        [10, 0],
        [90, 0],
      ]),
    ]);
    expect([found.percent, found.idleSeconds]).toEqual([null, 0]);
  });
});

it("takes the newest of what the jobs on a machine measured of it", () => {
  const jobs = new Map([
    ["a", holder("a", ["west", "east"], 2)],
    ["b", holder("b", ["east"], 1)],
  ]);
  const found = new Map([
    ["a", [series("system/node0/cpu_percent", [[900, 99]]), series("system/node1/cpu_percent", [[300, 40]])]],
    ["b", [series("system/node0/cpu_percent", [[310, 41]]), series("system/node0/memory_bytes", [[310, 5]])]],
  ]);
  expect(machineOf(node("east", ["a", "b"]), jobs, found)).toEqual({
    percent: { value: 41, at: 310 },
    memoryBytes: { value: 5, at: 310 },
  });
});

describe("how long a device is idle", () => {
  const idle = (points: [number, number | string][], from = 0) => idleSeconds(series("x", points), from);

  it("is the time since it was last used", () => {
    expect(
      idle([
        [0, 90],
        [10, 1],
        [20, 4.9],
        [30, 0],
      ]),
    ).toBe(20);
    expect(
      idle([
        [0, 0],
        [10, 0],
        [20, 5],
      ]),
    ).toBe(0);
    expect(idle([])).toBe(0);
  });

  it("does not count what is not known, or was before the attempt", () => {
    expect(
      idle([
        [0, 0],
        [10, "NaN"],
        [20, 0],
        [30, 0],
      ]),
    ).toBe(10);
    expect(
      idle(
        [
          [0, 0],
          [10, 0],
          [20, 0],
        ],
        10,
      ),
    ).toBe(10);
  });

  it("is exact for single points, and never too long for buckets of them", () => {
    let state = 7;
    const dice = () => {
      state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
      return state / 2_147_483_648;
    };
    for (let round = 0; round < 300; round += 1) {
      const count = 1 + Math.floor(dice() * 60);
      const busy = dice() * 0.3;
      const points: [number, number][] = [];
      for (let place = 0; place < count; place += 1) points.push([place * 10, dice() < busy ? 50 : dice() * 4]);
      const lastBusy = points.findLastIndex((point) => point[1] >= 5);
      const truth = lastBusy === count - 1 ? 0 : (count - 1 - (lastBusy + 1)) * 10;
      expect(idle(points)).toBe(truth);

      const size = 1 + Math.floor(dice() * 8);
      const buckets = { time: [] as number[], value: [] as number[], max: [] as number[] };
      for (let begin = 0; begin < count; begin += size) {
        const some = points.slice(begin, begin + size);
        buckets.time.push(some.at(-1)?.[0] ?? NaN);
        buckets.value.push(some.at(-1)?.[1] ?? NaN);
        buckets.max.push(Math.max(...some.map((point) => point[1])));
      }
      const found = idleSeconds(buckets, 0);
      expect(found).toBeLessThanOrEqual(truth);
      expect(found).toBeGreaterThan(truth - 2 * size * 10);
    }
  });
});
