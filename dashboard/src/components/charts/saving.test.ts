import { expect, it } from "vitest";
import { drawnCsv } from "./saving";

it("writes what is drawn with its buckets and its smoothed line", () => {
  const column = Float64Array.from([1, Number.NaN]);
  const curve = {
    name: "m",
    unit: "",
    attempt: 2,
    count: 2,
    step: column,
    time: column,
    value: column,
    min: column,
    max: column,
    span: null,
    nonFinite: 0,
    perPlace: 1,
  };
  const line = {
    job: "id",
    name: "a, b",
    slot: 0,
    curve,
    x: column,
    smoothed: column,
    end: 2,
    isRestart: false,
    origin: 0,
  };
  expect(drawnCsv("m", [line], "step").split("\r\n")).toEqual([
    "job,name,metric,attempt,step,time,value,min,max,smoothed",
    'id,"a, b",m,2,1,1,1,1,1,1',
    'id,"a, b",m,2,NaN,NaN,NaN,NaN,NaN,NaN',
    "",
  ]);
  const [header, row] = drawnCsv("m", [{ ...line, x: Float64Array.from([64, 128]) }], "samples").split("\r\n");
  expect(header).toBe("job,name,metric,attempt,step,samples,time,value,min,max,smoothed");
  expect(row).toBe('id,"a, b",m,2,1,64,1,1,1,1,1');
});
