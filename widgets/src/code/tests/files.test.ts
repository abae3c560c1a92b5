import { describe, expect, it } from "vitest";
import { fixture } from "../../editor/tests/kernel";
import type { Texts, VerdictView } from "../../protocol";
import { beforeOf, changedFiles, compilerFindings, isFiles, sameFiles, tabAt, tabsOf } from "../files";

const texts: Texts = {
  ...fixture("edited").texts,
  files: { "b.h": "b", "kernel.cpp": "k", "a.py": "a" },
  files_before: { "kernel.cpp": "old", "b.h": "" },
  main_file: "kernel.cpp",
  artefacts: ["asm"],
};
const verdict = (compiler: VerdictView["compiler"]) => ({ ...fixture("edited").detail.verdict, compiler });

describe("the files of a candidate", () => {
  it("are tabs: the main file, the others by name, then artefacts", () => {
    const tabs = tabsOf(texts, Object.keys(texts.files));
    expect(tabs.map((tab) => tab.key)).toEqual(["file:kernel.cpp", "file:a.py", "file:b.h", "artefact:asm"]);
    expect(tabs.map((tab) => tab.changed)).toEqual([true, false, true, false]);
    expect(tabAt(tabs, "file:b.h")?.name).toBe("b.h");
    expect(tabAt(tabs, "file:gone.h")?.name).toBe("kernel.cpp");
    expect(tabAt([], "x")).toBeNull();
    expect(tabsOf({ ...texts, main_file: "other" }, Object.keys(texts.files))[0]?.name).toBe("a.py");
  });

  it("are compared by their texts; only what changed is sent", () => {
    expect(sameFiles({ a: "1", b: "2" }, { b: "2", a: "1" })).toBe(true);
    expect(sameFiles({ a: "1" }, { a: "1", b: "" })).toBe(false);
    expect(changedFiles({ a: "1", b: "3" }, { a: "1", b: "2" })).toEqual({ b: "3" });
    expect(beforeOf(texts, "kernel.cpp")).toBe("old");
    expect(beforeOf(texts, "a.py")).toBe("a");
  });

  it("are read from the storage only when they are files", () => {
    expect(isFiles({ a: "1" })).toBe(true);
    for (const wrong of [null, 3, "a", { a: 1 }, [1]]) expect(isFiles(wrong)).toBe(false);
  });

  it("get the compiler's words at their lines, by name or by path", () => {
    const said = verdict([
      { file: "/tmp/x/kernel.cpp", line: 3, message: "error: 'n' was not declared" },
      { file: "kernel.cpp", line: 4, message: "warning: unused" },
      { file: "other.cpp", line: 1, message: "note: here" },
      { file: "notkernel.cpp", line: 9, message: "error: no" },
      { file: "kernel.cpp", line: null, message: "ninja: build stopped" },
    ]);
    expect(compilerFindings(said, "kernel.cpp").map((one) => [one.line, one.severity])).toEqual([
      [3, "error"],
      [4, "warning"],
    ]);
    expect(compilerFindings(said, "other.cpp")[0]?.severity).toBe("info");
    expect(compilerFindings(said, null).map((one) => one.message)).toEqual(["ninja: build stopped"]);
    expect(compilerFindings(null, "kernel.cpp")).toEqual([]);
  });
});
