/** What is taken along: a comparison's figures, and a link to a turn. */
import { describe, expect, it } from "vitest";
import { toCsv } from "../src/panels/take-comparison";
import { linkedTurn, linkTo } from "../src/place-link";

describe("a comparison as CSV", () => {
  it("quotes what holds a comma or a quote", () => {
    const rows = [{ name: "against eager", a: "2.0x [1.8, 2.2]", b: 'the "old" one', title: "" }];
    const found = { a: "t2", b: "t4", verdict: "Turn 2 is faster.", rows, diff: "" };
    expect(toCsv({ name: "k", a: "turn 2", b: "turn 4", found })).toBe(
      ',turn 2,turn 4\nagainst eager,"2.0x [1.8, 2.2]","the ""old"" one"\ndifference,Turn 2 is faster.,\n',
    );
  });
});

describe("a link to a turn", () => {
  const page = "http://127.0.0.1:8888/lab/tree/book.ipynb?token=secret&reset#heading";
  it("names session and turn, and no token", () => {
    const link = linkTo("rms/norm-1", "t3", page);
    expect(link).toBe("http://127.0.0.1:8888/lab/tree/book.ipynb?reset=#kernellab=rms%2Fnorm-1/t3");
    expect(linkedTurn("rms/norm-1", new URL(link).hash)).toBe("t3");
  });
  it("is of its own session alone", () => {
    expect(linkedTurn("other", "#kernellab=rms/t3")).toBeNull();
    expect(linkedTurn("rms", "#heading")).toBeNull();
  });
});
