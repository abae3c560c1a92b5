import { describe, expect, it } from "vitest";
import { codeLinesOf, generatedWords, sketchLineOf, spansOf } from "../links";
import { commentStart, isPinnable, isPinned, pinnedLines, withPin } from "../pins";

describe("pins in the text", () => {
  it("stand at the end of a line that has something to pin", () => {
    expect(isPinned("    x = 1  #: pin")).toBe(true);
    expect(isPinned("    x = 1  # why not  #: pin")).toBe(true);
    expect(isPinned("    x = 1  #: pinned")).toBe(false);
    expect(isPinned("    #: pin")).toBe(false);
    expect(isPinned('    f(a="#: pin")')).toBe(false);
    expect(pinnedLines("a = 1  #: pin\nb = 2\nc = 3 #: pin")).toEqual([1, 3]);
  });

  it("can be set on statements, loops and declarations only", () => {
    for (const line of ["    symbols: M;", "    for m in range(M):", "  x = 1", '    @llm_hint("parallel")']) {
      expect(isPinnable(line), line).toBe(true);
    }
    for (const line of ["", "   ", "# words", "}", "sketch a {", "sketch a {  # words"]) {
      expect(isPinnable(line), line).toBe(false);
    }
  });

  it("come and go without a trace, and leave comments alone", () => {
    for (const line of ["    x = 1", '    f("#")', "    x = 1  # why"]) {
      expect(isPinned(withPin(line, true)), line).toBe(true);
      expect(withPin(withPin(line, true), false)).toBe(line);
      expect(withPin(line, false)).toBe(line);
    }
    const pinned = withPin("    x = 1", true);
    expect(withPin(pinned, true)).toBe(pinned);
  });

  it("are not found in strings", () => {
    expect(commentStart('a = "# no" # yes')).toBe(11);
    expect(commentStart("a = '#")).toBe(-1);
  });
});

describe("links between sketch and code", () => {
  const map = { "kernel.cpp": { 4: 2, 5: 2, 6: 3, 9: 2 }, "kernel.py": {} };
  it("go both ways", () => {
    expect(sketchLineOf(map, "kernel.cpp", 6)).toBe(3);
    expect(sketchLineOf(map, "kernel.cpp", 7)).toBeNull();
    expect(sketchLineOf(map, "other.cpp", 1)).toBeNull();
    expect(codeLinesOf(map, "kernel.cpp", [2])).toEqual([4, 5, 9]);
    expect(codeLinesOf(map, "other.cpp", [2])).toEqual([]);
  });
  it("are described in words", () => {
    expect(spansOf([4, 5, 9])).toBe("4-5, 9");
    expect(generatedWords(map, 2)).toBe("lines 4-5, 9 of kernel.cpp");
    expect(generatedWords(map, 3)).toBe("line 6 of kernel.cpp");
    expect(generatedWords(map, 1)).toBe("");
  });
});
