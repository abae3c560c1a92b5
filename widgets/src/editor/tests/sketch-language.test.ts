import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { getIndentation } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { highlightTree, tagHighlighter, tags } from "@lezer/highlight";
import { describe, expect, it } from "vitest";
import { sketchLanguage } from "../sketch-language";

const SAMPLES = join(import.meta.dirname, "../../../../tests/sketch/samples");
const named = tagHighlighter(
  Object.entries({
    keyword: tags.keyword,
    section: tags.definitionKeyword,
    comment: tags.comment,
    pin: tags.annotation,
    string: tags.string,
    hint: tags.special(tags.string),
    number: tags.number,
    atom: tags.atom,
    meta: tags.meta,
    type: tags.typeName,
    role: tags.modifier,
    sketch: tags.definition(tags.className),
    call: tags.function(tags.variableName),
    tensor: tags.special(tags.variableName),
    constant: tags.constant(tags.variableName),
    argument: tags.propertyName,
    operator: tags.operator,
    invalid: tags.invalid,
  }).map(([name, tag]) => ({ tag, class: name })),
);

/** [text, class] of every coloured piece, in order */
function pieces(text: string): [string, string][] {
  const found: [string, string][] = [];
  highlightTree(sketchLanguage.parser.parse(text), named, (from, to, name) => {
    found.push([text.slice(from, to), name]);
  });
  return found;
}

const classOf = (text: string, word: string) => pieces(text).find(([piece]) => piece === word)?.[1];
const sample = (name: string) => readFileSync(join(SAMPLES, name), "utf8");

describe("highlighting of sketches", () => {
  it("finds nothing invalid in any sketch of the test corpus", () => {
    const names = readdirSync(SAMPLES).filter((name) => name.endsWith(".sketch"));
    expect(names.length).toBeGreaterThan(10);
    for (const name of names) {
      const wrong = pieces(sample(name)).filter(([, kind]) => kind === "invalid");
      expect(wrong, name).toEqual([]);
    }
  });

  it("tells declarations, tensors, tiles, calls and hints apart", () => {
    const text = sample("rms.sketch");
    const found = pieces(text);
    const kind = (word: string) => new Set(found.filter(([piece]) => piece === word).map(([, name]) => name));
    expect(kind("symbols")).toEqual(new Set(["section"]));
    expect(kind("X")).toEqual(new Set(["tensor"]));
    expect(kind("W")).toEqual(new Set(["tensor"]));
    expect(kind("w")).toEqual(new Set());
    expect(kind("BLOCK")).toEqual(new Set(["constant"]));
    expect(kind("M")).toEqual(new Set(["constant"]));
    expect(kind("load")).toEqual(new Set(["call"]));
    expect(kind("pad")).toEqual(new Set(["argument"]));
    expect(kind("f32")).toEqual(new Set(["type"]));
    expect(kind("out")).toEqual(new Set(["role"]));
    expect(kind('"parallel"')).toEqual(new Set(["hint"]));
    expect(kind('"fastest"')).toEqual(new Set(["hint"]));
    expect(kind("@llm_hint")).toEqual(new Set(["meta"]));
    expect(kind("rms_norm")).toEqual(new Set(["sketch"]));
    expect(kind("1e-6")).toEqual(new Set(["number"]));
  });

  it("takes a library call for one name", () => {
    expect(classOf("y = library.mm(x, w)", "library.mm")).toBe("call");
    expect(pieces("y = library.mm(x, w)").some(([, kind]) => kind === "invalid")).toBe(false);
  });

  it("forgets the names of one sketch in the next", () => {
    const text = "sketch a {\n    tensors: T[4]: f32;\n}\nsketch b {\n    T = 1\n}\n";
    expect(pieces(text).filter(([piece]) => piece === "T")).toEqual([["T", "tensor"]]);
  });

  it("ends a section at the first line that is not deeper", () => {
    const text = "sketch a {\n    tensors: A[4]: f32;\n        B[4]: f32 out;\n    c = add(A, B)\n    out = 1\n}\n";
    expect(classOf(text, "B")).toBe("tensor");
    expect(classOf(text, "c")).toBeUndefined();
    expect(pieces(text).filter(([piece]) => piece === "out")).toEqual([["out", "role"]]);
  });

  it("shows a pin as more than a comment, but not inside a string", () => {
    expect(classOf("x = 1  #: pin", "#: pin")).toBe("pin");
    expect(classOf("x = 1  # why  #: pin", "# why  #: pin")).toBe("pin");
    expect(classOf("x = 1  # a word", "# a word")).toBe("comment");
    expect(classOf('f(a="#: pin")', '"#: pin"')).toBe("string");
  });

  it("continues after text that is no sketch", () => {
    expect(pieces("§ $ ` ~ \u{1f600}").some(([, kind]) => kind === "invalid")).toBe(true);
    expect(classOf('x = "open\ny = 2', "2")).toBe("number");
    expect(classOf(")))}\nfor i in range(4):", "for")).toBe("keyword");
  });
});

describe("indentation", () => {
  const level = (text: string) => {
    const state = EditorState.create({ doc: text, extensions: [sketchLanguage] });
    return getIndentation(state, text.length);
  };
  it("goes one level in after a header and keeps the level after a statement", () => {
    expect(level("sketch a {\n")).toBe(2);
    expect(level("sketch a {\n    for m in range(M):\n")).toBe(6);
    expect(level("sketch a {\n    for m in range(M):  # rows\n")).toBe(6);
    expect(level("sketch a {\n    x = load(A[0:4] -> t)\n")).toBe(4);
    expect(level("sketch a {\n    symbols: M;\n")).toBe(4);
  });
});
