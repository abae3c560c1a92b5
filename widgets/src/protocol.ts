/**
 * What the kernel and the front end say to each other: one anywidget per session.
 *
 * State travels in traits, so that a reload of the page redraws it; it is the journal's, never the front end's.
 * Questions (diagnostics, completions, long texts) travel as custom messages with an id, answered by the same id.
 * The Python half is kernellab/notebook/workbench.py; both sides ignore fields and kinds that they do not know.
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
  current: string | null;
  approval: "none" | "routing" | "all" | string;
  roles: Record<string, string>;
  role_choices: Record<string, string[]>;
  can: Record<"step" | "run" | "pause" | "fork" | "stop" | "approve" | "edit", boolean>;
  card: Card | null;
  best: BestFigures | null;
  ledger: LedgerFigures | null;
  teaching: boolean;
  prediction: Prediction | null;
  comparing: boolean;
  /** speed-of-light bound, ms */
  sol_ms: number | null;
}

export interface Figure {
  /** what is shown: "2.9x" */
  text: string;
  /** baseline, interval, trust level and machine in words */
  title: string;
}

export interface BestFigures {
  turn: string;
  number: number;
  time: Figure | null;
  speedups: { baseline: string; value: number; low: number; high: number; text: string; title: string }[];
  /** share of the speed-of-light bound reached, 0..1 */
  headroom: { share: number; text: string; title: string } | null;
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
}

/** Teaching mode: what the person expects before the measurement. */
export interface Prediction {
  asked: boolean;
  turn: string | null;
  expected: number | null;
  reason: string;
  measured: number | null;
  history: { turn: string; expected: number; measured: number }[];
}

/** One row of the timeline; rows are in order of number. */
export interface TurnRow {
  id: string;
  number: number;
  parent: string | null;
  role: "designer" | "coder" | "verifier" | "conductor" | "analyst";
  author: "rules" | "model" | "human";
  state: "running" | "done" | "failed" | "passed" | "waiting" | "superseded";
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
}

export interface StageRow {
  name: string;
  state: "passed" | "failed" | "running" | "not reached" | "skipped";
  seconds: number;
  note: string;
}

/** About the turn that is looked at; changes when that turn does. */
export interface Detail {
  turn: string | null;
  stages: StageRow[];
  verdict: VerdictView | null;
  gate: { state: string; reason: string; cases: number; max_error: number | null } | null;
  diagnostics: Diagnostic[];
  rationale: string;
  claims: { text: string; holds: boolean | null; why: string }[];
  error: string;
  remedy: string;
  exchanges: ExchangeHead[];
  memory: { title: string; text: string; why: string }[];
  pins: number[];
}

export interface VerdictView {
  passed: boolean;
  stage: string;
  reason: string;
  trust: string;
  trust_text: string;
  label: string;
  flags: string[];
  figures: { name: string; text: string; title: string }[];
  comparisons: {
    baseline: string;
    value: number;
    low: number;
    high: number;
    distinguishable: boolean;
    text: string;
    title: string;
  }[];
  first_wrong: { index: number[]; got: string; want: string } | null;
  signature: string | null;
  sizes: Record<string, number>;
  error_map: string[];
  compiler: { file: string; line: number | null; message: string }[];
  environment: { name: string; text: string }[];
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
  points: { turn: string; number: number; intensity: number; rate: number; label: string; best: boolean }[];
  baselines: { baseline: string; rate: number }[];
  history: { turn: string; number: number; speedup: number; low: number; high: number }[];
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
  /** names of texts that `artefact` fetches: ttir, ttgir, ptx, asm */
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
  | { action: "pin"; line: number; on: boolean }
  | { action: "predict"; expected: number | null; reason: string }
  | { action: "budget"; value: string } // tokens=200000,usd=1,minutes=10; "" takes it away
  | { action: "analyse"; question: string } // a turn of the Analyst's beside the line; "" asks for a summary
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
  | { ask: "compare"; a: string; b: string }; // ids of turns -> CandidateComparison

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

/** `lines` maps the artefact's lines to those of `file`, where the compiler kept them. */
export interface Artefact {
  name: string;
  text: string;
  language: "asm" | "mlir" | "ptx" | "text";
  file: string;
  lines: Record<number, number>;
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
}

export interface CandidatePage {
  total: number;
  offset: number;
  rows: CandidateRow[];
}

/** Two candidates side by side; `verdict` is one sentence on the difference, `diff` a unified diff of all texts. */
export interface CandidateComparison {
  a: string;
  b: string;
  verdict: string;
  rows: { name: string; a: string; b: string; title: string }[];
  diff: string;
}

export interface ExchangeText {
  head: ExchangeHead;
  messages: { role: string; content: string }[];
  reply: string;
  reasoning: string;
  sections: { name: string; source: string; tokens: number; note: string }[];
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
}

export interface ToKernel {
  id: string;
  body: Act | Ask;
}

export type FromKernel =
  | { kind: "done"; id: string; error?: string; note?: string }
  | { kind: "answer"; id: string; value?: unknown; error?: string };
