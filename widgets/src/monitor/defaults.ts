/** What each trait holds before the kernel has said anything. */
import { filling } from "../fill";
import { type Figures, type Head, PROTOCOL, type Traits } from "./protocol";

const HEAD: Head = {
  protocol: PROTOCOL,
  run: "",
  name: "",
  dsl: "",
  target: "",
  status: "running",
  status_text: "",
  reason: "",
  message: "",
  measure: "speedup",
  policy: "",
  works_here: false,
  can: { pause: false, resume: false, stop: false, steer: false, work: false, remember: false },
  best: null,
  best_text: "",
  first_text: "",
  candidates: 0,
  waiting: 0,
  round: 0,
  islands: [],
  lines: [],
  improvements: [],
  suggestion: "",
};

const FIGURES: Figures = {
  rounds: [],
  steps: [],
  operators: [],
  cells: [],
  knobs: [],
  ledger: [],
  scratchpad: "",
  direction: "",
};

export const NOTHING: Traits = { head: HEAD, figures: FIGURES, version: 0, beat: 0 };

export const fill = filling(NOTHING);
