/** Highlighting of generated code and of what a compiler makes of it, by file name or kind of artefact. */

import { StreamLanguage, type StreamParser, type StringStream } from "@codemirror/language";
import { cpp as plainCpp } from "@codemirror/legacy-modes/mode/clike";
import { python as plainPython } from "@codemirror/legacy-modes/mode/python";
import type { Extension } from "@codemirror/state";

const CUDA = new Set(
  (
    "__global__ __device__ __host__ __shared__ __constant__ __restrict__ __forceinline__ __noinline__ " +
    "__launch_bounds__ __syncthreads __syncwarp __shfl_sync __shfl_down_sync __shfl_xor_sync __ldg " +
    "threadIdx blockIdx blockDim gridDim warpSize dim3 half half2 float2 float4 __nv_bfloat16"
  ).split(" "),
);

/** The library's mode leaves calls and names of a dialect as plain variables: this colours them. */
function refined(name: string, mode: StreamParser<unknown>, words: ReadonlySet<string>): StreamParser<unknown> {
  return {
    ...mode,
    name,
    token(stream, state) {
      const style = mode.token(stream, state);
      if (style !== "variable") return style;
      if (words.has(stream.current())) return "variableName.standard";
      return stream.match(/^\s*\(/, false) ? "variableName.function" : style;
    },
  };
}

const NONE: ReadonlySet<string> = new Set();
const cpp = StreamLanguage.define(refined("cpp", plainCpp, NONE));
const cuda = StreamLanguage.define(refined("cuda", plainCpp, CUDA));
const python = StreamLanguage.define(refined("python", plainPython, new Set(["tl", "triton", "torch"])));

interface Assembly {
  /** inside a comment of several lines */
  comment: boolean;
}

/** PTX, machine assembly, and MLIR's text (TTIR, TTGIR): registers, directives, labels and operations. */
const assembly = StreamLanguage.define<Assembly>({
  name: "assembly",
  startState: () => ({ comment: false }),
  copyState: (state) => ({ ...state }),
  token(stream, state) {
    if (state.comment) {
      if (stream.match(/^.*?\*\//)) state.comment = false;
      else stream.skipToEnd();
      return "comment";
    }
    const start = stream.sol() || /^\s*$/.test(stream.string.slice(0, stream.pos));
    if (stream.eatSpace()) return null;
    return read(stream, state, start);
  },
});

function read(stream: StringStream, state: Assembly, start: boolean): string | null {
  if (stream.match("/*")) {
    state.comment = true;
    return "comment";
  }
  if (stream.match(/^\/\/.*/)) return "comment";
  if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
  if (stream.match(/^[%$][\w.$]+(?:[:#]\d+)?/)) return "variableName.special";
  if (stream.match(/^!\w[\w.]*/)) return "typeName";
  if (stream.match(/^@[!%]?[\w.$]+/)) return "variableName.function";
  // in MLIR a # names an attribute; in assembly it starts a comment
  if (stream.match(/^#\w[\w.]*/)) return "meta";
  if (stream.match(/^#.*/)) return "comment";
  if (start && stream.match(/^[\w.$]+:(?!:)/)) return "labelName";
  if (stream.match(/^\.\w[\w.]*/)) return "keyword";
  if (stream.match(/^[-+]?(?:0[xX][\da-fA-F]+|0[fFdD][\da-fA-F]{8,16}|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?!\w)/))
    return "number";
  if (stream.match(/^(?:[fiu]\d+|bf16|index|tensor|memref|vector)\b/)) return "typeName";
  if (stream.match(/^[A-Za-z_][\w.$]*/)) return start || stream.current().includes(".") ? "keyword" : "variableName";
  stream.next();
  return null;
}

export type CodeLanguage = "python" | "cpp" | "cuda" | "assembly" | "text";

const ENDINGS: Record<string, CodeLanguage> = {
  py: "python",
  c: "cpp",
  cc: "cpp",
  cpp: "cpp",
  h: "cpp",
  hpp: "cpp",
  cu: "cuda",
  cuh: "cuda",
  ptx: "assembly",
  s: "assembly",
  asm: "assembly",
  mlir: "assembly",
  ttir: "assembly",
  ttgir: "assembly",
  llir: "assembly",
  ll: "assembly",
};

/** The language of a file by the ending of its name; `main` is that of the source as a whole, for names without. */
export function languageOf(file: string, main: string = "text"): CodeLanguage {
  const known = ENDINGS[file.split(".").at(-1)?.toLowerCase() ?? ""];
  if (known === "cpp" && main === "cuda") return "cuda";
  return known ?? (main === "python" || main === "cpp" || main === "cuda" ? main : "text");
}

export function highlighting(language: CodeLanguage): Extension {
  switch (language) {
    case "python":
      return python;
    case "cpp":
      return cpp;
    case "cuda":
      return cuda;
    case "assembly":
      return assembly;
    case "text":
      return [];
  }
}
