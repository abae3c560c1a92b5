/** What each trait holds before the kernel has said anything; also the list of the fields that are known here. */

import { once } from "./once";
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
  current: null,
  approval: "none",
  roles: {},
  role_choices: {},
  can: { step: false, run: false, pause: false, fork: false, stop: false, approve: false, edit: false },
  card: null,
  best: null,
  ledger: null,
  teaching: false,
  prediction: null,
  comparing: false,
  sol_ms: null,
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

/** A trait's value with every known field; what an older kernel leaves out is empty, what a newer one adds is ignored. */
export function fill<K extends keyof Traits>(name: K, value: unknown): Traits[K] {
  const empty = NOTHING[name];
  if (typeof empty !== "object") return (typeof value === typeof empty ? value : empty) as Traits[K];
  if (Array.isArray(empty)) return (Array.isArray(value) ? value : empty) as Traits[K];
  if (value === null || typeof value !== "object") return empty;
  const known: Record<string, unknown> = { ...empty };
  for (const [key, field] of Object.entries(value)) {
    if (!(key in known)) once(`kernellab: the kernel's ${name}.${key} is not known to this view and is ignored.`);
    else if (field !== undefined && !(field === null && empty[key as keyof typeof empty] !== null)) known[key] = field;
  }
  return known as unknown as Traits[K];
}
