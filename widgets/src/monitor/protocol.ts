/**
 * What the kernel and the monitor of a search say to each other: one anywidget per run.
 *
 * State travels in traits; rows travel as messages, each change once. A page that lacks some sees it by the trait
 * `version` and asks for them. The Python half is kernellab/notebook/monitor/protocol.py.
 */
import type { ComparedRow, Diagnostic, Download, NamedText } from "../protocol";

export const PROTOCOL = 1;

export interface Traits {
  head: Head;
  figures: Figures;
  /** that of the row which changed last */
  version: number;
  beat: number;
}

/** Small, changes often. */
export interface Head {
  protocol: number;
  run: string;
  /** the task's name */
  name: string;
  dsl: string;
  target: string;
  status: "running" | "paused" | "finished" | "stopped" | "failed";
  status_text: string;
  reason: string;
  /** the last decision that could not be carried out */
  message: string;
  /** what a row's `value` is: "speedup" over the reference, or "modelled", ms by the cost model */
  measure: "speedup" | "modelled";
  policy: string;
  /** does the kernel of this notebook work on it? */
  works_here: boolean;
  can: Record<"pause" | "resume" | "stop" | "steer" | "work" | "remember", boolean>;
  best: number | null;
  best_text: string;
  first_text: string;
  candidates: number;
  waiting: number;
  round: number;
  islands: Island[];
  lines: Line[];
  /** [evaluations, candidate]: who was the verified best from when on */
  improvements: number[][];
  /** a direction that the run proposes and a person decides on, "" for none */
  suggestion: string;
}

export interface Island {
  number: number;
  size: number;
  best: number | null;
  frozen: boolean;
}

/** A level to compare with, as a speedup over eager. */
export interface Line {
  name: string;
  value: number;
  title: string;
}

/**
 * A candidate. `value`, `low` and `high` are in the head's measure; `at` is its place in the order of evaluation, from
 * 1, null while it waits.
 */
export interface Row {
  number: number;
  round: number;
  island: number;
  operator: string;
  author: string;
  parents: number[];
  state: "waiting" | "passed" | "verified" | "flagged" | "failed" | "repeat" | "dropped";
  protected: boolean;
  at: number | null;
  value: number | null;
  low: number | null;
  high: number | null;
  text: string;
  /** the step that it failed, "" where it failed none */
  step: string;
  reason: string;
  seconds: number;
}

/**
 * Rows that changed after version `since`; `version` is that of the last. More are to be asked for where the trait's
 * version is higher.
 */
export interface Rows {
  since: number;
  version: number;
  rows: Row[];
}

/** What is known of the whole run; at most once a second. */
export interface Figures {
  rounds: Round[];
  steps: StepTotal[];
  operators: OperatorTotal[];
  cells: Cell[];
  knobs: Knob[];
  ledger: NamedText[];
  scratchpad: string;
  direction: string;
}

/** `after` is how many candidates were evaluated when it ended. */
export interface Round {
  round: number;
  evaluations: number;
  after: number;
  best: number | null;
  value: number | null;
  text: string;
  plan: string;
  author: string;
  prefer: string[];
}

export interface StepTotal {
  name: string;
  seen: number;
  refused: number;
  seconds: number;
}

/** `gain` is the sum of the logarithms of what its children improved. */
export interface OperatorTotal {
  name: string;
  tries: number;
  gain: number;
  seconds: number;
  tokens: number;
}

/** The best candidate of one kind: on-chip bytes are in powers of four, flop/byte in powers of two. */
export interface Cell {
  technique: string;
  footprint: number;
  stages: number;
  intensity: number;
  number: number;
}

/** `options` are what it may be, empty where anything of its kind may be. */
export interface Knob {
  name: string;
  value: string;
  options: string[];
  title: string;
}

export interface StepRow {
  name: string;
  seconds: number;
  passed: boolean;
}

export interface Candidate {
  number: number;
  sketch: string;
  files: Record<string, string>;
  why: string;
  inspirations: number[];
  children: number[];
  steps: StepRow[];
  facts: NamedText[];
  /** what may be done with it */
  can: Record<"protect" | "drop" | "open", boolean>;
}

/** Two candidates side by side; `verdict` is one sentence, `diff` a unified diff of their texts. */
export interface Comparison {
  a: number;
  b: number;
  verdict: string;
  rows: ComparedRow[];
  diff: string;
}

export interface Checked {
  diagnostics: Diagnostic[];
}

/** A person's decision; each but the last two is an event of the run. */
export type Act =
  | { action: "pause" | "resume" | "stop" | "work" }
  | { action: "inject"; text: string; island: number; why: string }
  | { action: "protect" | "drop"; number: number }
  | { action: "freeze" | "thaw"; island: number }
  | { action: "knob"; name: string; value: string }
  | { action: "scratchpad" | "direction"; text: string }
  | { action: "accept"; text: string } // the direction that is proposed, as it is or as edited
  | { action: "refuse" }
  | { action: "open"; number: number }
  | { action: "remember" }; // what an ended run has verified goes into the memory

export type Ask =
  | { ask: "rows"; since: number }
  | { ask: "candidate"; number: number }
  | { ask: "compare"; a: number; b: number }
  | { ask: "check"; text: string }
  | { ask: "report" };

/** What each question is answered with. */
export interface Answers {
  rows: Rows;
  candidate: Candidate;
  compare: Comparison;
  check: Checked;
  report: Download;
}
