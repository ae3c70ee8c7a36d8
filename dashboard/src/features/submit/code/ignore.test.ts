import { describe, expect, it } from "vitest";
import { taken } from "./ignore";

const FOLDER = ["train.py", "a.log", "keep.log", "data/x.bin", "sub/data/y.bin", "sub/b.log"];

describe("what goes into the archive", () => {
  // The cases of the command line's own tests: both must leave the same files behind.
  it.each([
    ["data\n", ["a.log", "keep.log", "sub/b.log", "train.py"]],
    ["*.log\n!keep.log\n", ["data/x.bin", "keep.log", "sub/data/y.bin", "train.py"]],
    ["/data/\n", ["a.log", "keep.log", "sub/b.log", "sub/data/y.bin", "train.py"]],
    ["sub/*.log\n# a comment\n\n", ["a.log", "data/x.bin", "keep.log", "sub/data/y.bin", "train.py"]],
    ["sub/**\n", ["a.log", "data/x.bin", "keep.log", "train.py"]],
    ["**/data/*.bin\n", ["a.log", "keep.log", "sub/b.log", "train.py"]],
    ["?.log\n", ["data/x.bin", "keep.log", "sub/data/y.bin", "train.py"]],
    ["[ak]*.LOG\n[ak]*.log\n!a.log\n", ["a.log", "data/x.bin", "sub/b.log", "sub/data/y.bin", "train.py"]],
    ["TRAIN.PY\n\\#\n*.lo[!g]\ntrain.py \n", FOLDER.filter((path) => path !== "train.py").sort()],
    ["train.py/\n", ["a.log", "data/x.bin", "keep.log", "sub/b.log", "sub/data/y.bin", "train.py"]],
  ])("with %j", (patterns, kept) => {
    expect(taken(FOLDER, patterns)).toEqual(kept);
  });

  it("leaves version control, caches and environments behind, at any depth", () => {
    const paths = [
      ".git/HEAD",
      "a/__pycache__/x",
      ".venv/bin/python",
      "a/old.pyc",
      ".DS_Store",
      "a/keep.py",
      ".gitignore",
    ];
    expect(taken(paths, "")).toEqual([".gitignore", "a/keep.py"]);
  });

  it("keeps nothing inside of a folder that is left out, as git does", () => {
    expect(taken(["data/keep.bin", "other"], "data/\n!data/keep.bin\n")).toEqual(["other"]);
  });

  it("takes signs of regular expressions as themselves", () => {
    expect(taken(["a+b(1).py", "aab1.py", "x.y", "xzy"], "a+b(1).py\nx.y\n")).toEqual(["aab1.py", "xzy"]);
  });
});
