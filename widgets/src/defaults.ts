/** What each trait holds before the kernel has said anything; also the list of the fields that are known here. */

import { filling } from "./fill";
import { type Detail, type Head, type Partial, PROTOCOL, type Roofline, type Texts, type Traits } from "./protocol";

const HEAD: Head = {
  protocol: PROTOCOL,
  id: "",
  name: "",
  operator: "",
  target: "",
  dsl: "",
  status: "paused",
  status_text: "",
  reason: "",
  message: "",
  doing: "",
  current: null,
  approval: "none",
  roles: {},
  role_choices: {},
  notes: {},
  can: { step: false, run: false, pause: false, fork: false, stop: false, approve: false, edit: false },
  card: null,
  best: null,
  ledger: null,
  teaching: false,
  prediction: null,
  comparing: false,
  sol_ms: null,
  call: "",
};

const DETAIL: Detail = {
  turn: null,
  stages: [],
  verdict: null,
  gate: null,
  diagnostics: [],
  rationale: "",
  claims: [],
  error: "",
  remedy: "",
  exchanges: [],
  memory: [],
  pins: [],
};

const ROOFLINE: Roofline = {
  peak_flops: 0,
  bandwidth: 0,
  ridge: 0,
  source: "",
  points: [],
  baselines: [],
  against: "eager",
  history: [],
};

const TEXTS: Texts = {
  turn: null,
  sketch: "",
  sketch_before: "",
  files: {},
  files_before: {},
  main_file: "",
  language: "text",
  line_map: {},
  artefacts: [],
  reproduction: "",
  log: "",
  task: "",
};

const PARTIAL: Partial = { turn: null, role: "", text: "", length: 0 };

export const NOTHING: Traits = {
  head: HEAD,
  turns: [],
  changed: [],
  detail: DETAIL,
  roofline: ROOFLINE,
  texts: TEXTS,
  partial: PARTIAL,
  shown: "",
  beat: 0,
};

export const fill = filling(NOTHING);
