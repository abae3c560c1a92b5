/**
 * What the kernel and the front end say to each other: one anywidget per session.
 *
 * State travels in traits, so that a reload of the page redraws it; it is the journal's, never the front end's.
 * Questions (diagnostics, completions, long texts) travel as custom messages with an id, answered by the same id.
 * The Python half is kernellab/notebook/protocol.py; both sides ignore fields and kinds that they do not know.
 * Dumps of real sessions' traits and answers are in widgets/fixtures (made by tests/notebook/make_fixture.py).
 */

export const PROTOCOL = 1;

// -- traits: kernel -> front end -------------------------------------------------------------------------------------

/** Small, changes often. */
export interface Head {
  protocol: number;
  /** the session's id in the journal; `name` is the variable that it is bound to */
  id: string;
  name: string;
  /** "f32 [M, N] -> f32 [M, N]", "cpp on 2-core AVX-512" */
  operator: string;
  target: string;
  dsl: string;
  status: "running" | "paused" | "waiting" | "finished" | "stopped" | "failed";
  status_text: string;
  /** why the status is what it is, one sentence */
  reason: string;
  /** the last decision that could not be carried out */
  message: string;
  /** what the running verification does: "correct: case 7 of 14; about 4 s left", "" while none runs */
  doing: string;
  current: string | null;
  approval: "none" | "routing" | "all" | string;
  roles: Record<string, string>;
  role_choices: Record<string, string[]>;
  /** what each role is to keep in mind */
  notes: Record<string, string[]>;
  can: Record<"step" | "run" | "pause" | "fork" | "stop" | "approve" | "edit", boolean>;
  card: Card | null;
  best: BestFigures | null;
  ledger: LedgerFigures | null;
  teaching: boolean;
  prediction: Prediction | null;
  comparing: boolean;
  /** speed-of-light bound, ms */
  sol_ms: number | null;
  /** how the best kernel is called from a cell, "" while there is none */
  call: string;
}

export interface Figure {
  /** what is shown: "2.9x" */
  text: string;
  /** baseline, interval, trust level and machine in words */
  title: string;
}

/** Against a baseline, with its interval: above 1 is faster. */
export interface Speedup {
  baseline: string;
  value: number;
  low: number;
  high: number;
  text: string;
  title: string;
}

/** The share of the speed-of-light bound that is reached, null where the bound cannot be believed. */
export interface Headroom {
  share: number | null;
  text: string;
  title: string;
}

export interface BestFigures {
  turn: string;
  number: number;
  time: Figure | null;
  speedups: Speedup[];
  /** share of the speed-of-light bound reached, 0..1 */
  headroom: Headroom | null;
  trust: string;
  label: string;
}

export interface LedgerFigures {
  input_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  usd: number | null;
  seconds: number;
  budget: string;
  text: string;
}

/** The question to the person, or (pending false) what was proposed at the shown turn. */
export interface Card {
  id: string;
  kind: "route" | "turn" | "brief" | "error";
  role: string;
  title: string;
  text: string;
  hint: string;
  evidence: string[];
  to: string | null;
  suggestion: string;
  pending: boolean;
  editable: boolean;
  /** may the role that is asked bring anything else, and keep what a person wrote? */
  retry: boolean;
}

export interface Predicted {
  turn: string;
  expected: number;
  measured: number;
}

/** Teaching mode: what the person expects before the measurement. */
export interface Prediction {
  asked: boolean;
  turn: string | null;
  expected: number | null;
  reason: string;
  measured: number | null;
  history: Predicted[];
}

/** One row of the timeline; rows are in order of number. */
export interface TurnRow {
  id: string;
  number: number;
  parent: string | null;
  role: "designer" | "coder" | "verifier" | "conductor" | "analyst";
  author: "rules" | "model" | "human";
  state: "running" | "done" | "failed" | "passed" | "waiting" | "superseded" | "stopped";
  on_path: boolean;
  depth: number;
  /** 0 while it runs: the front end counts from `started` (seconds since the epoch) */
  seconds: number;
  started: number;
  note: string;
  tokens: number;
}

/**
 * All rows. `turns` is sent whole only now and then; `changed` holds the rows that differ from it or are new, so that
 * a turn of a long session costs a few hundred bytes. A row of `changed` replaces the one of the same id.
 */
export function rowsOf(turns: TurnRow[], changed: TurnRow[]): TurnRow[] {
  const newer = new Map(changed.map((row) => [row.id, row]));
  const known = new Set(turns.map((row) => row.id));
  return [...turns.map((row) => newer.get(row.id) ?? row), ...changed.filter((row) => !known.has(row.id))];
}

export interface Diagnostic {
  line: number;
  col: number;
  end_line: number | null;
  end_col: number | null;
  code: string;
  rule: string;
  severity: "error" | "warning" | "info";
  message: string;
  remedy: string;
  /** what to put in its place, where the checker knows */
  fix: string | null;
}

export interface StageRow {
  name: string;
  state: "passed" | "failed" | "running" | "not reached" | "skipped";
  seconds: number;
  note: string;
}

export interface GateView {
  state: string;
  reason: string;
  cases: number;
  max_error: number | null;
}

export interface Claim {
  text: string;
  holds: boolean | null;
  why: string;
}

export interface Remembered {
  title: string;
  text: string;
  why: string;
}

/** About the turn that is looked at; changes when that turn does. */
export interface Detail {
  turn: string | null;
  stages: StageRow[];
  verdict: VerdictView | null;
  gate: GateView | null;
  diagnostics: Diagnostic[];
  rationale: string;
  claims: Claim[];
  error: string;
  remedy: string;
  exchanges: ExchangeHead[];
  memory: Remembered[];
  pins: number[];
}

export interface NamedFigure {
  name: string;
  text: string;
  title: string;
}

export interface ComparedSpeedup {
  baseline: string;
  value: number;
  low: number;
  high: number;
  distinguishable: boolean;
  text: string;
  title: string;
}

export interface FirstWrong {
  index: number[];
  got: string;
  want: string;
}

export interface CompilerLine {
  file: string;
  line: number | null;
  message: string;
}

export interface NamedText {
  name: string;
  text: string;
}

export interface VerdictView {
  passed: boolean;
  stage: string;
  reason: string;
  /** what to do about a refusal; "" where it passed */
  remedy: string;
  trust: string;
  trust_text: string;
  label: string;
  flags: string[];
  figures: NamedFigure[];
  comparisons: ComparedSpeedup[];
  first_wrong: FirstWrong | null;
  signature: string | null;
  sizes: Record<string, number>;
  error_map: string[];
  compiler: CompilerLine[];
  environment: NamedText[];
}

export interface RooflinePoint {
  turn: string;
  number: number;
  intensity: number;
  rate: number;
  label: string;
  best: boolean;
}

export interface BaselineRate {
  baseline: string;
  rate: number;
}

export interface SpeedupAt {
  turn: string;
  number: number;
  speedup: number;
  low: number;
  high: number;
}

/**
 * Times in ms, intensities in flop/byte, rates in flop/s. Points are verdicts of the session's turns; of a long session
 * the best, the newest and some between. The rates are 0 and there are no points where the chip's are not known.
 */
export interface Roofline {
  peak_flops: number;
  bandwidth: number;
  ridge: number;
  /** where the rates are from, in words */
  source: string;
  points: RooflinePoint[];
  baselines: BaselineRate[];
  /** what the speedups of `history` are against: PyTorch eager, or NumPy */
  against: string;
  history: SpeedupAt[];
}

export interface ExchangeHead {
  id: string;
  role: string;
  purpose: string;
  model: string;
  finish: string;
  error: string;
  tokens: string;
  seconds: number;
  /** "recorded on 2026-11-21" where the answer is a replay, else "" */
  recorded: string;
}

/**
 * Long and seldom changed; for the shown turn. `before` is what the line had before that turn's own sketch or source:
 * the diffs' left sides. `files_before` holds only the files that differ (a file that is new has "" there).
 */
export interface Texts {
  turn: string | null;
  sketch: string;
  sketch_before: string;
  files: Record<string, string>;
  files_before: Record<string, string>;
  main_file: string;
  language: "cpp" | "python" | "cuda" | "text";
  /** generated line -> sketch line, by file */
  line_map: Record<string, Record<number, number>>;
  /** names of texts that `artefact` fetches: ttir, ttgir, llir, ptx, sass, gimple, asm */
  artefacts: string[];
  reproduction: string;
  log: string;
  task: string;
}

/** What a running model turn has written so far: the last few thousand of `length` characters; turn null when none. */
export interface Partial {
  turn: string | null;
  role: string;
  text: string;
  length: number;
}

/** The model's traits by name. `shown` is the turn looked at ("" follows the head); both sides set it. */
export interface Traits {
  head: Head;
  turns: TurnRow[];
  changed: TurnRow[];
  detail: Detail;
  /** of the whole session, so it changes only with a new measurement */
  roofline: Roofline;
  texts: Texts;
  partial: Partial;
  shown: string;
  /** grows every few seconds while the kernel lives */
  beat: number;
}

// -- custom messages -------------------------------------------------------------------------------------------------

/**
 * front end -> kernel: a person's decision. Answered by {kind:"done", id, error?, note?}: error is a sentence with its
 * remedy and means that nothing was done; note is a sentence to show. The same id sent twice is carried out once.
 * `card` is the card's id that was answered: when it is not the open one any more, the answer is an error.
 * `base` is the turn whose sketch or source was edited (Texts.turn when the edit began, "" when it does not matter):
 * when the head has another text since, the answer is an error, unless `shown` is that turn: then it is a fork.
 * predict: expected null lets the measurement go on without a prediction.
 * insert: a kernel cannot put a cell into the notebook by itself; the note says how it gets there. Copy it as well.
 */
export type Act =
  | { action: "step" | "run" | "pause" | "stop" }
  | { action: "approve"; card: string; to?: string; suggestion?: string }
  | { action: "answer"; card: string; text: string }
  | { action: "sketch"; text: string; base: string }
  | { action: "source"; files: Record<string, string>; base: string }
  | { action: "fork"; turn: string }
  | { action: "approval"; value: string }
  | { action: "role"; role: string; value: string }
  | { action: "note"; role: string; text: string }
  | { action: "unnote"; role: string; text: string }
  | { action: "pin"; line: number; on: boolean }
  | { action: "predict"; expected: number | null; reason: string }
  | { action: "budget"; value: string } // tokens=200000,usd=1,minutes=10; "" takes it away
  | { action: "analyse"; question: string } // a turn of the Analyst's beside the line; "" asks for a summary
  | { action: "remember" } // what the session has verified goes into the memory
  | { action: "forget"; id: string } // an entry of the memory: out of the store and of every later prompt
  | { action: "judge"; id: string; thumb: number; pinned: boolean }
  | { action: "insert"; text: string };

/**
 * front end -> kernel: questions. Answered by {kind:"answer", id, value} or {kind:"answer", id, error}.
 * A "check" that a newer one has overtaken is answered by the error "superseded".
 */
export type Ask =
  | { ask: "check"; text: string } // -> Checked
  | { ask: "complete"; text: string; line: number; col: number } // -> Completion[]; line and col from 1
  | { ask: "hover"; text: string; line: number; col: number } // -> Hover | null
  | { ask: "exchange"; exchange: string } // -> ExchangeText
  | { ask: "brief" } // -> Brief
  | { ask: "artefact"; name: string } // -> Artefact, of the shown turn
  | { ask: "candidates"; offset: number; limit: number; sort?: "number" | "speedup" } // -> CandidatePage
  | { ask: "compare"; a: string; b: string } // ids of turns -> CandidateComparison
  | { ask: "explain"; what: "verdict" | "speed" } // -> Explained, of the shown turn
  | { ask: "touches"; text: string } // -> Touches, of a sketch's text
  | { ask: "memory"; words: string } // -> MemoryPage; no words: kernels of computations like this task's
  | { ask: "export"; what: "module" | "candidates" }; // -> Download: the best as a module, or all candidates as CSV

/**
 * Answer to "check"; cost and footprint are words with numbers, empty when the sketch cannot be costed. Right after a
 * kernel has started the task's sizes are not known for a few seconds: ask again when `head.operator` changes.
 */
export interface Checked {
  diagnostics: Diagnostic[];
  cost: Figure[];
  pins: number[];
}

/** `insert` replaces the word before the cursor: the letters, digits, `_` and `.` that end there. */
export interface Completion {
  label: string;
  kind: "name" | "operation" | "hint" | "keyword" | "type";
  detail: string;
  info: string;
  insert: string;
}

/** `from` and `to` are [line, col] from 1, `to` behind the last character; `text` is plain, with line breaks. */
export interface Hover {
  title: string;
  text: string;
  from: [number, number];
  to: [number, number];
}

/** What the role that a person holds is told: the same text that a model gets. */
export interface Brief {
  role: string;
  text: string;
  /** what an answer looks like: a sketch's text, a kernel's files, or a route with a suggestion */
  expects: "sketch" | "code" | "route";
}

/**
 * `lines` maps the artefact's lines to those of `file`, where the compiler kept them; `facts` are what the compiler's
 * texts tell, a sentence in each title.
 */
export interface Artefact {
  name: string;
  text: string;
  language: "asm" | "mlir" | "ptx" | "text";
  file: string;
  lines: Record<number, number>;
  facts: NamedFigure[];
}

/** A candidate: a Coder's turn and its verdict's figures, null while there are none. `value` is the speedup's number. */
export interface CandidateRow {
  turn: string;
  number: number;
  author: string;
  passed: boolean | null;
  on_path: boolean;
  trust: string;
  time: Figure | null;
  speedup: Figure | null;
  value: number | null;
  note: string;
  best: boolean;
}

export interface CandidatePage {
  total: number;
  offset: number;
  rows: CandidateRow[];
}

export interface ComparedRow {
  name: string;
  a: string;
  b: string;
  title: string;
}

/** Two candidates side by side; `verdict` is one sentence on the difference, `diff` a unified diff of all texts. */
export interface CandidateComparison {
  a: string;
  b: string;
  verdict: string;
  rows: ComparedRow[];
  diff: string;
}

export interface ExplainedPoint {
  /** `because` is the fact of the record behind it, "" where the text is the fact */
  text: string;
  because: string;
}

/** A verdict, or why its kernel is slow, by rules from the record; `question` is what a model would be asked. */
export interface Explained {
  title: string;
  points: ExplainedPoint[];
  advice: string;
  question: string;
}

export interface TouchedTensor {
  /** `reads` and `writes` are how often each element is touched, flat and row-major */
  name: string;
  shape: number[];
  dtype: string;
  role: string;
  reads: number[];
  writes: number[];
}

/** One load or store: `tensor` is its place in `Touches.tensors`, `ranges` are [first, count] of flat elements. */
export interface TouchedPart {
  tensor: number;
  write: boolean;
  line: number;
  ranges: number[][];
  /** places past the tensor's edge */
  outside: number;
}

export interface TouchStep {
  /** where the loops stand: "m = 0, n = 16" */
  at: string;
  parts: TouchedPart[];
}

/**
 * What a sketch loads and stores, step by step, at a small size; `steps` are the first of `total`. Nothing is drawn
 * where `reason` says why.
 */
export interface Touches {
  sizes: string;
  tensors: TouchedTensor[];
  steps: TouchStep[];
  total: number;
  bytes: Figure[];
  reason: string;
}

export interface SaidMessage {
  role: string;
  content: string;
}

export interface BriefSection {
  name: string;
  source: string;
  tokens: number;
  note: string;
}

/** What was learnt of an entry: the mean reward of its uses, 0..1. */
export interface Learnt {
  mean: number;
  uses: number;
}

/** An entry of the memory. A search by words has no scores. */
export interface MemoryHit {
  id: string;
  name: string;
  why: string;
  score: number | null;
  logic: number | null;
  shape: number | null;
  value: number | null;
  draft: Learnt;
  refine: Learnt;
  thumb: number;
  pinned: boolean;
  /** why its figures do not hold here, "" where they do */
  stale: string;
  /** "session rms-1a2b, turn 4, by rules" */
  provenance: string;
  sketch: string;
}

/** `note` says why there is no hit, and how a memory is begun. */
export interface MemoryPage {
  hits: MemoryHit[];
  note: string;
}

/** A file for the person to keep. */
export interface Download {
  name: string;
  text: string;
}

export interface ExchangeText {
  head: ExchangeHead;
  messages: SaidMessage[];
  reply: string;
  reasoning: string;
  sections: BriefSection[];
}

/** What each question is answered with. */
export interface Answers {
  check: Checked;
  complete: Completion[];
  hover: Hover | null;
  exchange: ExchangeText;
  brief: Brief;
  artefact: Artefact;
  candidates: CandidatePage;
  compare: CandidateComparison;
  explain: Explained;
  touches: Touches;
  memory: MemoryPage;
  export: Download;
}

export interface ToKernel {
  id: string;
  body: Act | Ask;
}

export type FromKernel =
  | { kind: "done"; id: string; error?: string; note?: string }
  | { kind: "answer"; id: string; value?: unknown; error?: string };
