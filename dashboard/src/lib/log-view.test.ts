import { describe, expect, it } from "vitest";
import { compare, cursorAt, filterOf, filtersInWords, readLogView, readPlace, writePlace } from "./log-view";

describe("readLogView", () => {
  it("takes what an address says", () => {
    expect(readLogView({ attempt: 2, rank: "-1", stream: "stderr", search: "loss", line: "2-501" })).toEqual({
      attempt: 2,
      rank: -1,
      stream: "stderr",
      search: "loss",
      line: "2-501",
    });
  });

  it("leaves out what is no view", () => {
    expect(readLogView({ attempt: 0, rank: 1.5, stream: "stdin", search: "", line: "12", tab: "logs" })).toEqual({});
    expect(readLogView({ search: { a: 1 }, line: "0-3", attempt: "x", rank: -2 })).toEqual({});
  });

  it("searches for digits, which the router reads as a number", () => {
    expect(readLogView({ search: 404 })).toEqual({ search: "404" });
  });

  it("knows the first error as a line", () => {
    expect(readLogView({ line: "first-error" })).toEqual({ line: "first-error" });
  });
});

it("gives the service only filters that are on", () => {
  expect(filterOf({ rank: 0, line: "1-4" })).toEqual({ rank: 0 });
  expect(Object.keys(filterOf({ attempt: undefined, search: "x" }))).toEqual(["search"]);
});

it("says which filters are on", () => {
  expect(filtersInWords({ attempt: 2, rank: -1, stream: "stderr", search: "nan" })).toEqual([
    "attempt 2",
    "launcher",
    "stderr",
    "containing “nan”",
  ]);
  expect(filtersInWords({})).toEqual([]);
});

describe("places", () => {
  it("are counted from 1 in the address and from 0 by the service", () => {
    const place = readPlace("2-501");
    expect(place).toEqual({ attempt: 2, line: 500 });
    expect(cursorAt({ attempt: 2, line: 500 })).toBe("2.500");
    expect(writePlace({ attempt: 2, line: 500 })).toBe("2-501");
  });

  it.each(["", "501", "1-0", "0-1", "1-2-3", "1.2", "-1-2", "1-x"])("%j is none", (text) => {
    expect(readPlace(text)).toBeNull();
  });

  it("stand in the order of attempts, then of lines", () => {
    const places = [
      { attempt: 2, line: 0 },
      { attempt: 1, line: 30 },
      { attempt: 1, line: 4 },
    ];
    expect(places.sort(compare).map(writePlace)).toEqual(["1-5", "1-31", "2-1"]);
  });
});
