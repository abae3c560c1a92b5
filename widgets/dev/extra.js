/** What no dump has, written by hand for looking at: a failed exchange next to a recorded one, a prediction, a memory. */
const head = {
  id: "x1",
  role: "coder",
  purpose: "code",
  model: "a-model",
  finish: "stop",
  error: "",
  tokens: "3.1k in, 640 out",
  seconds: 12.4,
  recorded: "recorded on cpp, AVX2",
};

export const exchanges = [
  {
    ...head,
    id: "x0",
    purpose: "code",
    finish: "length",
    error: "The reply was cut off at 2048 tokens. Raise max_tokens.",
    recorded: "",
  },
  head,
];

const hit = {
  id: "e1",
  name: "layer_norm",
  why: "91 % of the computation",
  score: 0.8,
  logic: 0.91,
  shape: 0.7,
  value: 0.6,
  draft: { mean: 0.75, uses: 4 },
  refine: { mean: 0.5, uses: 0 },
  thumb: 1,
  pinned: false,
  stale: "",
  provenance: "session layer_norm-1, turn 3, by rules",
  sketch: "sketch layer_norm {\n    symbols: M, N;\n    ...\n}",
};

export const answers = {
  memory: { value: { hits: [hit, { ...hit, id: "e2", score: null, stale: "measured on another chip" }], note: "" } },
  exchange: {
    value: {
      head,
      messages: [
        { role: "system", content: "You write kernels in C++ with OpenMP. Answer with whole files.\n".repeat(6) },
        {
          role: "user",
          content:
            "sketch rms_norm {\n    symbols: M, N;\n    ...\n}\n\nThe last verdict: errors lie only in the last tile of N.\n",
        },
      ],
      reply:
        '```cpp\n#include "kl_tile.h"\n\nstatic void rms_norm(const float* x, const float* w, float* y) {\n    ...\n}\n```',
      reasoning: "The error map shows the last column only, so the tail of N is not masked.",
      sections: [
        { name: "role", source: "prompts/coder.j2", tokens: 310, note: "who you are" },
        { name: "sketch", source: "turn 14", tokens: 420, note: "what to lower" },
        {
          name: "language",
          source: "knowledge/sketch/language.md",
          tokens: 980,
          note: "cut to the operations of this sketch",
        },
        { name: "examples", source: "knowledge/dsl/cpp/examples", tokens: 1150, note: "two of the family reduction" },
        { name: "last verdict", source: "turn 16", tokens: 240, note: "what to mend" },
      ],
    },
  },
};

export const prediction = {
  asked: false,
  turn: "t16",
  expected: 2,
  reason: "it reads x once instead of twice",
  measured: 1.35,
  history: [
    { turn: "t3", expected: 1.5, measured: 0.78 },
    { turn: "t7", expected: 2, measured: 1.35 },
    { turn: "t16", expected: 2.5, measured: 2.42 },
  ],
};
