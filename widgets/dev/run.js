/** A search of any length, without randomness: its rows, its head and its figures as the kernel sends them. */
const OPERATORS = ["rules:tile", "rules:interchange", "rules:split", "cross", "model:small", "rules:pipeline"];
const STEPS = ["check", "novelty", "gate", "cost", "build", "rank", "verify"];
const TECHNIQUES = ["blocks", "rows in cache", "split-K", "online"];

const noise = (n) => {
  const x = Math.sin(n * 12.9898) * 43758.5453;
  return x - Math.floor(x);
};

export function row(number, perRound = 8, islands = 4) {
  const round = number < 4 ? 0 : Math.floor((number - 4) / perRound) + 1;
  const failed = number > 3 && noise(number) < 0.3;
  const speedup = 0.9 + 1.9 * (1 - Math.exp(-number / 400)) - 0.7 * noise(number + 0.5) ** 2 + 0.4 * noise(number / 7);
  const verified = !failed && number % 9 === 0;
  return {
    number,
    round,
    island: number % islands,
    operator: number < 4 ? "seed" : OPERATORS[Math.floor(noise(number + 2) * OPERATORS.length)],
    author: number === 17 ? "human" : "rules",
    parents: number < 4 ? [] : [Math.floor((number * (0.55 + 0.4 * noise(number + 1))) / 1.02)],
    state: failed ? "failed" : verified ? "verified" : "passed",
    protected: number === 9,
    at: number + 1,
    value: failed ? null : speedup,
    low: failed ? null : speedup * 0.97,
    high: failed ? null : speedup * 1.03,
    text: failed ? "" : `${speedup.toFixed(2)}x eager [${(speedup * 0.97).toFixed(2)}, ${(speedup * 1.03).toFixed(2)}]`,
    step: failed ? STEPS[Math.floor(noise(number + 3) * 6)] : "",
    reason: failed
      ? "It is as good as candidate 3: its schedule differs in nothing that the compiler keeps."
      : "Tiles of 64 rows instead of 32, so that a tile's sums stay in registers.",
    seconds: 1 + 6 * noise(number + 4),
  };
}

export const rows = (count) => Array.from({ length: count }, (_, number) => row(number));

export function head(all) {
  const good = all.filter((one) => one.state === "verified");
  const improvements = [];
  let best = null;
  for (const one of good) {
    if (best !== null && one.value <= best.value) continue;
    best = one;
    improvements.push([one.at, one.number]);
  }
  const last = all.at(-1);
  return {
    protocol: 1,
    run: "rms_norm-6f7b67a6",
    name: "rms_norm",
    dsl: "cpp",
    target: "",
    status: "running",
    status_text: `running: round ${last.round} of 99, ${all.length} candidates`,
    reason: "",
    message: "",
    measure: "speedup",
    policy: "islands",
    works_here: true,
    can: { pause: true, resume: false, stop: true, steer: true, work: false, remember: false },
    best: best?.number ?? null,
    best_text: best?.text ?? "",
    first_text: `first design ${all[0].text}`,
    candidates: all.length,
    waiting: 3,
    round: last.round,
    islands: [0, 1, 2, 3].map((number) => ({ number, size: all.length / 4, best: number, frozen: number === 3 })),
    lines: [
      { name: "eager", value: 1, title: "the reference, run by PyTorch eager" },
      { name: "compile", value: 1.7, title: "torch.compile" },
      { name: "bound", value: 3.6, title: "the task's speed-of-light bound" },
    ],
    improvements,
    suggestion: "",
    began: 1_795_718_650,
    spent: 312,
    left: null,
    tokens: 0,
  };
}

export function figures(all) {
  const last = all.at(-1).round;
  const rounds = Array.from({ length: Math.min(last, 40) }, (_, round) => {
    const upto = all.filter((one) => one.round <= round && one.state === "verified");
    const best = upto.reduce((a, b) => (a && a.value >= b.value ? a : b), null);
    return {
      round,
      evaluations: round ? 8 : 4,
      after: 4 + 8 * round,
      best: best?.number ?? null,
      value: best?.value ?? null,
      text: best?.text ?? "",
      plan: round
        ? "tile of rows >= 64: 1.31x faster [1.12, 1.52], 9 candidates with it, 14 without. two passes over the row: 1.20x slower [1.05, 1.38], 6 candidates with it, 17 without."
        : "",
      author: "rules",
      prefer: round ? ["rules:tile", "rules:split"] : [],
    };
  });
  return {
    rounds,
    steps: STEPS.map((name, at) => ({
      name,
      seen: all.length - at * 3,
      refused: at * 2,
      seconds: 0.4 * (at + 1) ** 3,
    })),
    operators: OPERATORS.map((name, at) => ({
      name,
      tries: 20 - at,
      gain: 1.2 / (at + 1),
      seconds: 30 + at,
      tokens: at === 4 ? 12000 : 0,
    })),
    cells: TECHNIQUES.flatMap((technique, t) =>
      [3, 4, 5, 6]
        .filter((footprint) => (t + footprint) % 3)
        .map((footprint) => ({
          technique,
          footprint,
          stages: 1 + (t % 2),
          intensity: t,
          number: (t * 7 + footprint * 9) % all.length,
        })),
    ),
    knobs: [
      ["rounds", "99"],
      ["parallel", "4"],
      ["select", "islands"],
      ["migrate_every", "1"],
      ["elites", "2"],
      ["target", "0.0"],
      ["plateau", "0"],
      ["budget", ""],
    ].map(([name, value]) => ({
      name,
      value,
      title: name,
      options: name === "select" ? ["islands", "ucb", "beam"] : [],
    })),
    ledger: [
      { name: "wall clock", text: "12.4 min" },
      { name: "measuring", text: "288.1 s" },
      { name: "tokens", text: "12,000 in, 3,400 out" },
    ],
    scratchpad: "",
    direction: "",
  };
}

export const answers = {
  candidate: (body) => ({
    number: body.number,
    sketch:
      "sketch rms_norm {\n    symbols: M, N;\n    tensors: x[M, N]: f32; y[M, N]: f32 out;\n\n    for m in range(M):\n        load(x[m, 0:N] -> tile)\n        store(tile * 2 -> y[m, 0:N])\n}\n",
    files: {},
    why: "",
    inspirations: [1, 2],
    steps: STEPS.slice(0, 5).map((name, at) => ({ name, seconds: 0.1 * at, passed: true })),
    facts: [
      { name: "against eager", text: "1.92x eager [1.85, 1.99]" },
      { name: "on chip", text: "24,576 B" },
    ],
    can: { protect: true, drop: true, open: true },
  }),
  compare: (body) => ({
    a: body.a,
    b: body.b,
    verdict: `Candidate ${body.b} is 1.21 times as fast as candidate ${body.a} (95 %: 1.15 to 1.27).`,
    rows: [
      { name: "against eager", a: "1.60x [1.55, 1.66]", b: "1.94x [1.88, 2.01]", title: "" },
      { name: "on chip", a: "24,576 B", b: "24,576 B", title: "" },
    ],
    diff: "--- candidate 1/sketch\n+++ candidate 2/sketch\n@@ -3,4 +3,4 @@\n for m in range(M):\n-    constexpr: BLOCK = 32\n+    constexpr: BLOCK = 64",
  }),
  check: ({ text }) => {
    const line = 1 + text.split("\n").findIndex((one) => one.includes("oops"));
    const place = { line, col: 5, end_line: null, end_col: null, rule: "", fix: null };
    const wrong = { ...place, code: "SK001", message: "Not a statement.", remedy: "Remove it.", severity: "error" };
    return { diagnostics: line ? [wrong] : [], cost: [], pins: [] };
  },
  complete: () => [],
  hover: () => null,
};
