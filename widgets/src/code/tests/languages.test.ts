import { ensureSyntaxTree } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { highlightTree, tagHighlighter, tags } from "@lezer/highlight";
import { describe, expect, it } from "vitest";
import { fixture } from "../../editor/tests/kernel";
import { type CodeLanguage, highlighting, languageOf } from "../languages";

const named = tagHighlighter(
  Object.entries({
    keyword: tags.keyword,
    comment: tags.comment,
    string: tags.string,
    number: tags.number,
    meta: tags.meta,
    type: tags.typeName,
    call: tags.function(tags.variableName),
    dialect: tags.standard(tags.variableName),
    register: tags.special(tags.variableName),
    label: tags.labelName,
    property: tags.propertyName,
  }).map(([name, tag]) => ({ tag, class: name })),
);

function pieces(language: CodeLanguage, text: string): [string, string][] {
  const state = EditorState.create({ doc: text, extensions: highlighting(language) });
  const tree = ensureSyntaxTree(state, text.length, 5000);
  const found: [string, string][] = [];
  if (tree) highlightTree(tree, named, (from, to, name) => found.push([text.slice(from, to), name]));
  return found;
}

const kinds = (language: CodeLanguage, text: string, word: string) => [
  ...new Set(
    pieces(language, text)
      .filter(([piece]) => piece === word)
      .map(([, kind]) => kind),
  ),
];

describe("languages", () => {
  it("are found by the file's name, and else by the source's language", () => {
    expect(languageOf("kernel.cpp")).toBe("cpp");
    expect(languageOf("kl_tile.h", "cuda")).toBe("cuda");
    expect(languageOf("kernel.cu")).toBe("cuda");
    expect(languageOf("kernel.py", "cuda")).toBe("python");
    expect(languageOf(".ttgir")).toBe("assembly");
    expect(languageOf("KERNEL.PTX")).toBe("assembly");
    expect(languageOf("Makefile", "cpp")).toBe("cpp");
    expect(languageOf("notes")).toBe("text");
  });

  it("colour the C++ and the Python that the rules wrote", () => {
    const { files } = fixture("designed").texts;
    expect(kinds("cpp", files["kernel.cpp"], "for")).toEqual(["keyword"]);
    expect(kinds("cpp", files["kernel.cpp"], "float")).toEqual(["type"]);
    expect(kinds("python", files["kernel.py"], "def")).toEqual(["keyword"]);
    expect(kinds("python", files["kernel.py"], "torch")).toContain("dialect");
  });

  it("know the words of CUDA and of Triton", () => {
    const cuda = "__global__ void f(float* x) { __shared__ float s[32]; s[threadIdx.x] = x[0]; __syncthreads(); }";
    expect(kinds("cuda", cuda, "__shared__")).toEqual(["dialect"]);
    expect(kinds("cuda", cuda, "threadIdx")).toEqual(["dialect"]);
    expect(kinds("cpp", cuda, "threadIdx")).toEqual([]);
    const triton = "@triton.jit\ndef f(X):\n    x = tl.load(X + 1)  # x\n";
    expect(kinds("python", triton, "tl")).toEqual(["dialect"]);
    expect(kinds("python", triton, "# x")).toEqual(["comment"]);
  });

  it("colour what compilers write", () => {
    const { text } = fixture("answers").artefact.value;
    expect(pieces("assembly", text).filter(([, kind]) => kind === "keyword").length).toBeGreaterThan(20);
    const ptx =
      ".visible .entry f(\n)\n{\n\tld.global.f32 \t%f1, [%rd4+16]; // first\n$L__BB0_2:\n\t@%p1 bra \t$L__BB0_2;\n}";
    expect(kinds("assembly", ptx, "ld.global.f32")).toEqual(["keyword"]);
    expect(kinds("assembly", ptx, "%f1")).toEqual(["register"]);
    expect(kinds("assembly", ptx, "// first")).toEqual(["comment"]);
    expect(kinds("assembly", ptx, "$L__BB0_2")).toContain("register");
    const mlir = "#blocked = #ttg.blocked<{order = [0]}>\n%0 = tt.load %arg0 : tensor<128x!tt.ptr<f32>, #blocked>";
    expect(kinds("assembly", mlir, "#blocked")).toEqual(["meta"]);
    expect(kinds("assembly", mlir, "tt.load")).toEqual(["keyword"]);
    expect(kinds("assembly", mlir, "!tt.ptr")).toEqual(["type"]);
    expect(kinds("assembly", "/* two\nlines */ mov eax, 1", "1")).toEqual(["number"]);
  });
});
