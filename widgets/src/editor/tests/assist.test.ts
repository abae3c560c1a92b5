import { CompletionContext } from "@codemirror/autocomplete";
import { EditorState } from "@codemirror/state";
import { describe, expect, it } from "vitest";
import type { Completion } from "../../protocol";
import { choiceOf, completionSource, hoverRange } from "../assist";

const one = (label: string, more: Partial<Completion> = {}): Completion => ({
  label,
  kind: "operation",
  detail: "",
  info: "",
  insert: label,
  ...more,
});

function at(text: string, explicit = false): CompletionContext {
  return new CompletionContext(EditorState.create({ doc: text }), text.length, explicit);
}

describe("completion", () => {
  it("replaces the word before the cursor, and asks with places from 1", async () => {
    const asked: unknown[] = [];
    const source = completionSource(async (text, line, col) => {
      asked.push([text, line, col]);
      return [one("reduce_sum", { detail: "reduce_sum(x, axis=?)", info: "The sum." })];
    });
    const found = await source(at("a = 1\nx = red"));
    expect(asked).toEqual([["a = 1\nx = red", 2, 8]]);
    expect(found?.from).toBe(10);
    expect(found?.options[0]).toMatchObject({
      label: "reduce_sum",
      type: "operation",
      detail: "reduce_sum(x, axis=?)",
    });
  });

  it("takes a dotted hint as one word", async () => {
    const source = completionSource(async () => [one("grididx.x", { kind: "hint" })]);
    const found = await source(at('@llm_hint("parallel", "grididx.'));
    expect(found?.from).toBe('@llm_hint("parallel", "'.length);
  });

  it("stays away unasked after a space or a number, and comes when asked", async () => {
    const source = completionSource(async () => [one("load")]);
    expect(await source(at("x = "))).toBeNull();
    expect(await source(at("x = 12"))).toBeNull();
    expect(await source(at("x = ", true))).not.toBeNull();
    expect(await source(at("@"))).not.toBeNull();
  });

  it("is none when the kernel has none or does not answer", async () => {
    expect(await completionSource(async () => [])(at("lo"))).toBeNull();
    const gone = completionSource(async () => {
      throw new Error("gone");
    });
    expect(await gone(at("lo"))).toBeNull();
  });

  it("inserts what the kernel says, and shows an unknown kind as a name", () => {
    expect(choiceOf(one("for", { kind: "keyword", insert: "for i in range(" }))).toMatchObject({
      apply: "for i in range(",
    });
    expect(choiceOf(one("load"))).not.toHaveProperty("apply");
    expect(choiceOf(one("new", { kind: "macro" as never })).type).toBe("name");
  });
});

describe("hover help", () => {
  const { doc } = EditorState.create({ doc: "x = load(A)\n" });
  it("covers its word, and is none elsewhere", () => {
    const help = { title: "load", text: "", from: [1, 5] as [number, number], to: [1, 9] as [number, number] };
    expect(hoverRange(doc, help, 6)).toEqual({ from: 4, to: 8 });
    expect(hoverRange(doc, help, 10)).toBeNull();
    expect(hoverRange(doc, { ...help, from: [9, 9], to: [1, 1] }, 12)).toEqual({ from: 12, to: 12 });
  });
});
