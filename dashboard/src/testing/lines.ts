/** Lines of points, for tests of what is made of them. */
import type { Line } from "@/lib/lines";

export function aLine(
  job: string,
  x: number[],
  value: number[],
  { attempt = 1, ...changes }: Partial<Line> & { attempt?: number } = {},
): Line {
  const values = Float64Array.from(value);
  const step = Float64Array.from(x);
  return {
    job,
    name: job,
    slot: 0,
    curve: {
      name: "loss",
      unit: "",
      attempt,
      count: x.length,
      nonFinite: 0,
      perPlace: 1,
      step,
      time: step.map((each) => 1_000 + each),
      value: values,
      min: values,
      max: values,
      span: null,
    },
    x: step,
    smoothed: null,
    end: x.length,
    isRestart: attempt > 1,
    origin: 1_000,
    ...changes,
  };
}
