/**
 * What the kernel and the front end say to each other: one anywidget per session.
 *
 * State travels in traits, so that a reload of the page redraws it; it is the journal's, never the front end's.
 * Questions (diagnostics, completions, long texts) travel as custom messages with an id, answered by the same id.
 * The Python half is kernellab/notebook/workbench.py; both sides ignore fields and kinds that they do not know.
 */

export const PROTOCOL = 1;

// -- traits: kernel -> front end -------------------------------------------------------------------------------------

/** Small, changes often. */
export interface Head {
  protocol: number;
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
  seconds: number;
  note: string;
  tokens: number;
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
  roofline: Roofline | null;
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
  comparisons: { baseline: string; value: number; low: number; high: number; distinguishable: boolean; text: string; title: string }[];
  first_wrong: { index: number[]; got: string; want: string } | null;
  signature: string | null;
  sizes: Record<string, number>;
  error_map: string[];
  compiler: { file: string; line: number | null; message: string }[];
  environment: { name: string; text: string }[];
}

/** Times in ms, intensities in flop/byte, rates in flop/s. Points are verdicts of the session's turns. */
export interface Roofline {
  peak_flops: number;
  bandwidth: number;
  ridge: number;
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
  recorded: string;
}

/** Long and seldom changed; for the shown turn. `before` is what the parent's line had: the diffs' left sides. */
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
  /** what a running model turn has written so far */
  partial: string;
  task: string;
}

/** The model's traits by name. `shown` is the turn looked at ("" follows the head); both sides set it. */
export interface Traits {
  head: Head;
  turns: TurnRow[];
  detail: Detail;
  texts: Texts;
  shown: string;
  /** grows every few seconds while the kernel lives */
  beat: number;
}

// -- custom messages -------------------------------------------------------------------------------------------------

/** front end -> kernel: a person's decision. Answered by {kind:"done", id, error?}: error is a sentence with remedy. */
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
  | { action: "predict"; expected: number; reason: string }
  | { action: "compare"; a: string; b: string }
  | { action: "insert"; text: string };

/** front end -> kernel: questions. Answered by {kind:"answer", id, value} or {kind:"answer", id, error}. */
export type Ask =
  | { ask: "check"; text: string }
  | { ask: "complete"; text: string; line: number; col: number }
  | { ask: "hover"; text: string; line: number; col: number }
  | { ask: "exchange"; exchange: string }
  | { ask: "brief" }
  | { ask: "artefact"; name: string }
  | { ask: "candidates"; offset: number; limit: number }
  | { ask: "compare"; a: string; b: string };

/** answer to "check"; cost and footprint are words with numbers, empty when the sketch cannot be costed */
export interface Checked {
  diagnostics: Diagnostic[];
  cost: Figure[];
  pins: number[];
}

export interface Completion {
  label: string;
  kind: "name" | "operation" | "hint" | "keyword" | "type";
  detail: string;
  info: string;
  insert: string;
}

export interface Hover {
  title: string;
  text: string;
  from: [number, number];
  to: [number, number];
}

export interface ExchangeText {
  head: ExchangeHead;
  messages: { role: string; content: string }[];
  reply: string;
  reasoning: string;
  sections: { name: string; source: string; tokens: number; note: string }[];
}

export interface ToKernel {
  id: string;
  body: Act | Ask;
}

export type FromKernel =
  | { kind: "done"; id: string; error?: string }
  | { kind: "answer"; id: string; value?: unknown; error?: string };
