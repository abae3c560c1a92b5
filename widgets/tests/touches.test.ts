/** The picture of what a sketch touches: where cells lie, which are shaded, what is said of them. */
import { describe, expect, it } from "vitest";
import { heat, layoutOf, pathOf, reuseOf } from "../src/panels/touches";

describe("touches", () => {
  it("cuts ranges at the ends of rows", () => {
    expect(pathOf([[3, 4]], 5, 2)).toBe("M6 0h4v2h-4zM0 2h4v2h-4z");
    expect(pathOf([], 5, 2)).toBe("");
  });
  it("lays the last dimension across, and a vector in rows", () => {
    expect(layoutOf({ shape: [2, 3, 4] })).toMatchObject({ columns: 4, rows: 6 });
    expect(layoutOf({ shape: [130] })).toMatchObject({ columns: 64, rows: 3 });
    expect(layoutOf({ shape: [] })).toMatchObject({ columns: 1, rows: 1 });
    expect(layoutOf({ shape: [5, 2000] }).cell).toBe(2);
  });
  it("shades by count, neighbours of one count together", () => {
    expect(heat({ reads: [2, 2, 0, 4], writes: [0, 0, 0, 4] })).toEqual([
      { share: 0.25, ranges: [[0, 2]] },
      { share: 1, ranges: [[3, 1]] },
    ]);
  });
  it("says how often elements are touched", () => {
    expect(reuseOf({ reads: [2, 2], writes: [0, 0] })).toBe("each element read twice");
    expect(reuseOf({ reads: [0, 5], writes: [1, 1] })).toBe("read never to 5 times; each element written once");
    expect(reuseOf({ reads: [0], writes: [0] })).toBe("never touched");
  });
});
