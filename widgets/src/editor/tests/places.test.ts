import { EditorState, Text } from "@codemirror/state";
import { describe, expect, it } from "vitest";
import type { Diagnostic } from "../../protocol";
import { changeOf } from "../basics";
import { offsetOf, placeOf } from "../columns";
import { countOf, inOrder, marksOf, merged, rangeOf, severityOf, wordsOf } from "../diagnostics";
import { Holder } from "../holder";

const doc = (text: string) => EditorState.create({ doc: text }).doc;
const found = (line: number, col: number, more: Partial<Diagnostic> = {}): Diagnostic => ({
  line,
  col,
  end_line: null,
  end_col: null,
  code: "SK012",
  rule: "",
  severity: "error",
  message: "Unknown name 'y'.",
  remedy: "Declare it.",
  fix: null,
  ...more,
});

describe("places", () => {
  it("go both ways, with tabs and characters outside the first plane", () => {
    const text = doc("ab\n\tx = 1\n\u{1f600}y\n");
    expect(offsetOf(text, 2, 5)).toBe(4);
    expect(placeOf(text, 4)).toEqual({ line: 2, col: 5 });
    expect(offsetOf(text, 3, 2)).toBe(text.line(3).from + 2);
    expect(placeOf(text, text.line(3).from + 2)).toEqual({ line: 3, col: 2 });
  });

  it("of another text are shown from its first column on", () => {
    const holder = new Holder((_, text) => EditorState.create({ doc: text }));
    const close = holder.mount(document.body, "one", "a");
    holder.view?.scrollDOM.scrollTo(90, 90);
    expect(holder.view?.scrollDOM.scrollLeft).toBe(90);
    holder.show("two", "b");
    expect(holder.view?.scrollDOM.scrollLeft).toBe(0);
    close();
  });

  it("outside the document are the nearest ones inside", () => {
    const text = doc("ab\ncd");
    expect(offsetOf(text, 99, 1)).toBe(3);
    expect(offsetOf(text, 1, 99)).toBe(2);
    expect(offsetOf(text, 0, 0)).toBe(0);
    expect(offsetOf(text, -5, -5)).toBe(0);
    expect(offsetOf(text, Number.NaN, 1)).toBe(0);
    expect(offsetOf(Text.empty, 3, 3)).toBe(0);
    expect(placeOf(text, 99)).toEqual({ line: 2, col: 3 });
  });
});

describe("findings in the text", () => {
  const text = doc("sketch a {\n    x = yy + 1\n\n}\n");
  const cut = (one: Diagnostic) => text.sliceString(...rangeOf(text, one));

  it("cover their range, or the word, or the character, or the line", () => {
    expect(cut(found(2, 5, { end_line: 2, end_col: 15 }))).toBe("x = yy + 1");
    expect(cut(found(2, 9))).toBe("yy");
    expect(cut(found(2, 12))).toBe("+");
    expect(cut(found(2, 99))).toBe("x = yy + 1");
    expect(cut(found(1, 1, { end_line: 2, end_col: 6 }))).toBe("sketch a {\n    x");
  });

  it("never leave the document, however wrong their lines are", () => {
    for (const line of [-1, 0, 3, 5, 99]) {
      for (const end of [null, -3, 0, 99]) {
        const [mark] = marksOf(text, [found(line, 7, { end_line: end, end_col: end })]);
        expect(mark?.from).toBeGreaterThanOrEqual(0);
        expect(mark?.to).toBeLessThanOrEqual(text.length);
        expect(mark?.to).toBeGreaterThanOrEqual(mark?.from ?? 0);
      }
    }
    expect(rangeOf(Text.empty, found(4, 4))).toEqual([0, 0]);
  });

  it("tell their severity in a word and a glyph", () => {
    const [mark] = marksOf(text, [found(2, 9, { severity: "warning" })]);
    expect(mark?.severity).toBe("warning");
    expect(mark?.message).toBe("warning SK012: Unknown name 'y'. Declare it.");
    const drawn = mark?.renderMessage?.(null as never) as HTMLElement;
    expect(drawn.textContent).toContain("▲ warning");
    expect(severityOf(found(1, 1, { severity: "fatal" as never }))).toBe("info");
    expect(wordsOf(found(1, 1, { code: "", remedy: "" }))).toBe("error: Unknown name 'y'.");
  });

  it("are in order, counted, and told once though the record has them too", () => {
    const list = [found(3, 1, { severity: "info" }), found(2, 1, { severity: "warning" }), found(2, 9)];
    expect(inOrder(list).map((one) => [one.line, one.severity])).toEqual([
      [2, "error"],
      [2, "warning"],
      [3, "info"],
    ]);
    expect(countOf(list)).toBe("1 error, 1 warning, 1 remark");
    expect(countOf([found(1, 1), found(2, 1)])).toBe("2 errors");
    expect(merged([found(2, 9)], [found(2, 9), found(4, 1)])).toHaveLength(2);
  });
});

describe("the smallest change", () => {
  it("leaves what is equal alone", () => {
    expect(changeOf("abc", "abc")).toBeNull();
    expect(changeOf("abc", "abXc")).toEqual({ from: 2, to: 2, insert: "X" });
    expect(changeOf("aaa", "aa")).toEqual({ from: 2, to: 3, insert: "" });
    expect(changeOf("", "x")).toEqual({ from: 0, to: 0, insert: "x" });
  });

  it("makes the one text into the other, whatever they are", () => {
    const texts = ["", "a", "aa", "aba", "abab", "\n", "a\nb\na", "b\na\nb"];
    for (const before of texts) {
      for (const after of texts) {
        const changes = changeOf(before, after);
        const state = EditorState.create({ doc: before });
        expect(changes ? state.update({ changes }).newDoc.toString() : before).toBe(after);
      }
    }
  });
});
