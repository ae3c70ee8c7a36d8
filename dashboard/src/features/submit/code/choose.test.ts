import { expect, it } from "vitest";
import { choose, ignoreFileOf, LIMITS, NotSent } from "./choose";

function listed(name: string, size = 10) {
  return { webkitRelativePath: `project/${name}`, size };
}

it("names files relative to the folder, sorted, and counts their bytes", () => {
  const chosen = choose([listed("train.py"), listed("sub/a.py", 5), listed(".git/HEAD", 999)], "");
  expect(chosen.files.map(({ name }) => name)).toEqual(["sub/a.py", "train.py"]);
  expect([chosen.folder, chosen.bytes]).toEqual(["project", 15]);
});

it("prefers .lockstepignore to .gitignore, and only at the top", () => {
  expect(ignoreFileOf([listed(".gitignore"), listed("sub/.lockstepignore")])?.webkitRelativePath).toBe(
    "project/.gitignore",
  );
  expect(ignoreFileOf([listed(".gitignore"), listed(".lockstepignore")])?.webkitRelativePath).toBe(
    "project/.lockstepignore",
  );
  expect(ignoreFileOf([listed("train.py")])).toBeUndefined();
});

it("refuses what is too large with the biggest files by name, and too many with their number", () => {
  const half = LIMITS.unpacked_bytes_max / 2;
  const large = [listed("data/b.bin", half), listed("train.py"), listed("data/a.bin", half + 1)];
  expect(() => choose(large, "")).toThrow(
    /project has 1\.00 GiB; at most 1\.00 GiB is taken\. The biggest files: data\/a\.bin/,
  );
  expect(choose(large, "data/\n").files).toHaveLength(1);
  const many = Array.from({ length: LIMITS.files_max + 1 }, (_, index) => listed(`f${index}`));
  expect(() => choose(many, "")).toThrow("project has 50,001 files; at most 50,000 are taken.");
  expect(() => choose([listed(".git/HEAD")], "")).toThrow(NotSent);
});
