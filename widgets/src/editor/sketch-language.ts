/**
 * Highlighting of the Unified Sketch: a tokenizer by line, after kernellab/sketch/syntax/grammar.lark and layout.py.
 *
 * It only colours. Whatever is wrong is said by the kernel's checker, so an unknown operation is coloured as a call and
 * no list of operations has to be kept in step here. Names are coloured by what they were declared as: a tensor (global
 * memory) looks different from a tile.
 */

import { LanguageSupport, StreamLanguage, type StringStream } from "@codemirror/language";
import { tags } from "@lezer/highlight";
import { ATOMS, BLOCKS, DECLARATIONS, KEYWORDS, ROLES, TYPES } from "./words";

type Section = (typeof DECLARATIONS)[number];
type Sort = "tensor" | "symbol" | "constant";

interface State {
  /** what each declared name of this sketch is; replaced, never changed, because states are kept by line */
  names: ReadonlyMap<string, Sort>;
  section: Section | null;
  /** indentation of the line that opened the section: deeper lines continue it */
  sectionIndent: number;
  /** open brackets */
  depth: number;
  /** the brackets that hints stand in: strings there are hint words */
  hintDepth: number;
  /** a declared name may come next */
  expectName: boolean;
  /** the last token that is no comment */
  previous: string;
  /** indentation and first token of the last line with code on it */
  indent: number;
  first: string;
}

const KEYWORD = new Set<string>(KEYWORDS);
const BLOCK = new Set<string>(BLOCKS);
const ATOM = new Set<string>(ATOMS);
const TYPE = new Set<string>(TYPES);
const ROLE = new Set<string>(ROLES);
const SECTION = new RegExp(`^(${DECLARATIONS.join("|")})(?=\\s*:)`);
/** `library.mm` is one name. */
const NAME = /^(?:library\.[A-Za-z_]\w*|[A-Za-z_]\w*)/;
const NUMBER = /^(?:0[xX][0-9A-Fa-f]+|\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?/;
const OPERATOR = /^(?:->|<=|>=|==|!=|<<|>>|\/\/|\*\*|[-+*/%<>=&|^~])/;

/** The sort of name that a section declares. */
const DECLARES: Record<Section, Sort | null> = {
  symbols: "symbol",
  tensors: "tensor",
  constexpr: "constant",
  require: null,
  opaque: null,
};

const COLOURS: Record<Sort, string> = {
  tensor: "variableName.special",
  symbol: "variableName.constant",
  constant: "variableName.constant",
};

function startState(): State {
  return {
    names: new Map(),
    section: null,
    sectionIndent: 0,
    depth: 0,
    hintDepth: 0,
    expectName: false,
    previous: "",
    indent: 0,
    first: "",
  };
}

function token(stream: StringStream, state: State): string | null {
  if (stream.sol()) {
    const blank = stream.match(/^\s*(#|$)/, false);
    if (!blank && state.depth === 0) {
      if (stream.indentation() <= state.sectionIndent) state.section = null;
      state.indent = stream.indentation();
      state.first = "";
    }
  }
  if (stream.eatSpace()) return null;
  if (stream.peek() === "#") {
    const comment = stream.string.slice(stream.pos);
    stream.skipToEnd();
    return /#: pin\s*$/.test(comment) ? "annotation" : "comment";
  }
  const style = read(stream, state);
  state.previous = stream.current();
  state.first ||= state.previous;
  return style;
}

function read(stream: StringStream, state: State): string | null {
  if (stream.match(/^"[^"]*"?/) || stream.match(/^'[^']*'?/)) return state.hintDepth ? "string.special" : "string";
  if (stream.match(NUMBER)) return "number";
  const section = state.depth === 0 && (stream.match(SECTION) as RegExpMatchArray | null);
  if (section) {
    state.section = section[1] as Section;
    state.sectionIndent = stream.indentation();
    state.expectName = true;
    return "definitionKeyword";
  }
  if (stream.match(/^@[A-Za-z_]\w*/)) {
    if (stream.match(/^\s*\(/, false)) state.hintDepth = state.depth + 1;
    return "meta";
  }
  if (stream.match(NAME)) return name(stream, state);
  if (stream.match(OPERATOR)) {
    state.expectName = false;
    return "operator";
  }
  const mark = stream.next() ?? "";
  if ("([{".includes(mark)) {
    // the brace of `sketch name {` stays open to the end: nothing is inside a bracket for it
    if (mark !== "{" || state.section) state.depth += 1;
    state.expectName = false;
    return "bracket";
  }
  if (")]}".includes(mark)) {
    state.depth = Math.max(0, state.depth - 1);
    if (state.depth < state.hintDepth) state.hintDepth = 0;
    return "bracket";
  }
  if (mark === ";" || mark === ",") {
    state.expectName = state.depth === 0 && (mark === ";" || state.section !== "tensors");
    return "punctuation";
  }
  if (mark === ":") {
    state.expectName = state.expectName && state.previous !== "]";
    return "punctuation";
  }
  return "invalid";
}

function name(stream: StringStream, state: State): string {
  const word = stream.current();
  const expected = state.expectName;
  state.expectName = false;
  if (state.previous === "sketch") {
    state.names = new Map();
    return "definition(className)";
  }
  if (TYPE.has(word) && !stream.match(/^\s*=/, false)) return "typeName";
  if (state.section === "tensors" && state.depth === 0 && !expected && ROLE.has(word)) return "modifier";
  if (KEYWORD.has(word) && !(word === "sketch" && state.depth)) return "keyword";
  if (ATOM.has(word)) return "atom";
  const sort = state.section && state.depth === 0 && expected ? DECLARES[state.section] : null;
  if (sort) {
    state.names = new Map(state.names).set(word, sort);
    return COLOURS[sort];
  }
  if (stream.match(/^\s*\(/, false)) return "variableName.function";
  if (state.depth > 0 && stream.match(/^\s*=(?!=)/, false)) {
    if (word === "llm_hint") state.hintDepth = state.depth;
    return "propertyName";
  }
  const known = state.names.get(word);
  return known ? COLOURS[known] : "variableName";
}

export const sketchLanguage = StreamLanguage.define<State>({
  name: "sketch",
  startState,
  copyState: (state) => ({ ...state }),
  token,
  languageData: {
    commentTokens: { line: "#" },
    closeBrackets: { brackets: ["(", "[", "{", '"'] },
    indentOnInput: /^\s*(\}|elif .*:|else\s*:)$/,
  },
  tokenTable: { "definition(className)": tags.definition(tags.className) },
  /** A body is one level deeper than the line that opens it; other lines keep the level of the line before. */
  indent: (state, textAfter, { unit }) => {
    if (textAfter.startsWith("}")) return 0;
    if (/^(elif|else)\b/.test(textAfter)) return Math.max(0, state.indent - unit);
    const opens = state.previous === "{" || (state.previous === ":" && BLOCK.has(state.first));
    return opens ? state.indent + unit : state.indent;
  },
});

export function sketchSupport(): LanguageSupport {
  return new LanguageSupport(sketchLanguage);
}
