import { describe, expect, it } from "vitest";
import type { TurnRow } from "../src/protocol";
import { EVERYTHING, foldsOver, LANES, layout, passes, tree } from "../src/tree";

const NONE: ReadonlySet<string> = new Set();

/** "1 2<1 3<2 4<1": number<parent */
function rows(text: string, more: Partial<TurnRow> = {}): TurnRow[] {
  return text.split(" ").map((word) => {
    const [id, parent] = word.split("<") as [string, string | undefined];
    return {
      id,
      number: Number(id),
      parent: parent ?? null,
      role: "coder",
      author: "rules",
      state: "done",
      on_path: true,
      depth: 0,
      seconds: 1,
      started: 0,
      note: `turn ${id}`,
      tokens: 0,
      ...more,
    };
  });
}

const lanes = (text: string, folded: ReadonlySet<string> = NONE) => layout(rows(text), folded).map((line) => line.lane);

describe("lanes", () => {
  it("go straight on without forks", () => {
    const lines = layout(rows("1 2<1 3<2"), NONE);
    expect(lines.map((line) => [line.lane, line.above, line.below, line.opens])).toEqual([
      [0, 0, 1, 0],
      [0, 1, 1, 0],
      [0, 1, 0, 0],
    ]);
  });

  it("open beside what followed the parent", () => {
    const lines = layout(rows("1 2<1 3<2 4<1 5<4"), NONE);
    expect(lines.map((line) => line.lane)).toEqual([0, 0, 0, 1, 1]);
    expect(lines[0]).toMatchObject({ opens: 2, below: 1 });
    // the branch's edge passes the rows between
    expect(lines[1]).toMatchObject({ above: 3, below: 3 });
    expect(lines[3]).toMatchObject({ from: 0, fold: "open", level: 2 });
    expect(lines[4]).toMatchObject({ from: null, fold: null, level: 2 });
  });

  it("are taken again when their branch has ended", () => {
    expect(lanes("1 2<1 3<1 4<3 5<4 6<5 7<5")).toEqual([0, 0, 1, 1, 1, 1, 0]);
  });

  it("never become more than the gutter holds", () => {
    const many = ["1", ...Array.from({ length: 40 }, (_, at) => `${at + 2}<1`)].join(" ");
    const found = layout(rows(many), NONE);
    expect(Math.max(...found.map((line) => line.lane))).toBe(LANES - 1);
    // whoever shares the last lane hangs on the root without a gap
    expect(found.slice(LANES, -1).every((line) => (line.below >> (LANES - 1)) & 1)).toBe(true);
  });

  it("begin anew for a second root", () => {
    expect(layout(rows("1 2<1 3 4<3"), NONE)[2]).toMatchObject({ above: 0, from: null, level: 1 });
  });

  it("survive a parent that is not there", () => {
    expect(lanes("3<2 4<3")).toEqual([0, 0]);
  });
});

describe("folding", () => {
  it("hides a branch and counts what it hides", () => {
    const lines = layout(rows("1 2<1 3<1 4<3 5<4"), new Set(["3"]));
    expect(lines.map((line) => line.row.id)).toEqual(["1", "2", "3"]);
    expect(lines[2]).toMatchObject({ fold: "closed", hidden: 2 });
  });

  it("can be undone for a turn that must be seen", () => {
    expect(foldsOver(rows("1 2<1 3<1 4<3 5<4"), new Set(["3"]), "5")).toEqual(["3"]);
    expect(foldsOver(rows("1 2<1"), new Set(["9"]), "2")).toEqual([]);
  });
});

describe("filters", () => {
  it("hang a row on the nearest ancestor that is shown", () => {
    const all = rows("1 2<1 3<2").map((row) => ({ ...row, on_path: row.id !== "2" }));
    const lines = layout(all, NONE, { which: "path", text: "" });
    expect(lines.map((line) => [line.row.id, line.above])).toEqual([
      ["1", 0],
      ["3", 1],
    ]);
  });

  it("find words in any part of a row", () => {
    const [row] = rows("7", { role: "verifier", note: "failed at correct: edge-tile" }) as [TurnRow];
    expect(["edge", "VERIFIER", "7", " "].map((text) => passes(row, { which: "all", text }))).toEqual([
      true,
      true,
      true,
      true,
    ]);
    expect(passes(row, { which: "human", text: "" })).toBe(false);
  });
});

it("takes the shape over when only what rows say has changed, and not otherwise", () => {
  const first = rows("1 2<1 3<2");
  const before = tree(first, NONE, EVERYTHING, null);
  const second = first.map((row) => (row.id === "3" ? { ...row, note: "newer" } : row));
  const after = tree(second, NONE, EVERYTHING, before);
  expect(after.index).toBe(before.index);
  expect(after.lines.map((line) => line.row.note)).toEqual(["turn 1", "turn 2", "newer"]);
  expect(after.lines[0]).toBe(before.lines[0]);
  expect(tree(rows("1 2<1 3<1"), NONE, EVERYTHING, before).lines[2]).toMatchObject({ lane: 1 });
  expect(tree([...first, ...rows("4<3")], NONE, EVERYTHING, before).lines).toHaveLength(4);
  expect(tree(first, NONE, { which: "failed", text: "" }, before).lines).toHaveLength(0);
});
