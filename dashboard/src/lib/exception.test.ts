import { expect, it } from "vitest";
import { raisedIn } from "./exception";

const TRACEBACK = `step 3
Traceback (most recent call last):
  File "train.py", line 12, in <module>
    main()
  File "train.py", line 3, in main
    raise RuntimeError("CUDA out of memory.")
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB`;

it("is the last line of the last traceback, with the frame that raised it", () => {
  const wanted = {
    exception: "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
    frame: 'File "train.py", line 3, in main',
    line: 6,
  };
  expect(raisedIn(TRACEBACK)).toEqual(wanted);
  expect(raisedIn(`${TRACEBACK}\ncleaning up\nwandb: done`)).toEqual(wanted);
  const first = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n\nDuring handling:\n\n';
  expect(raisedIn(first + TRACEBACK)).toEqual({ ...wanted, line: 12 });
});

it("is found behind a prefix and in colours", () => {
  const lines = TRACEBACK.split("\n").map((line) => `[rank0]: \u001b[31m${line}\u001b[0m`);
  expect(raisedIn(lines.join("\n"))?.exception).toBe("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB");
});

it("is a line of its own where there is no traceback, and null where there is none", () => {
  expect(raisedIn("step 1\ntorch.OutOfMemoryError: CUDA out of memory\nbye")).toMatchObject({ line: 1, frame: null });
  expect(raisedIn("step 1\nKilled")).toBeNull();
  expect(raisedIn("Traceback (most recent call last):")).toBeNull();
});
