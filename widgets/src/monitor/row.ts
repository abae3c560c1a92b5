/** A candidate's row in words. */
import { NONE, three, times } from "../format";
import type { Head, Row } from "./protocol";

/** 1.92x [1.85, 1.99]; 0.0098 ms; a dash */
export function figureOf(row: Row, measure: Head["measure"]): string {
  if (row.value === null) return NONE;
  if (measure === "modelled") return `${three(row.value)} ms`;
  const interval = row.low === null || row.high === null ? "" : ` [${row.low.toFixed(2)}, ${row.high.toFixed(2)}]`;
  return `${times(row.value)}${interval}`;
}

/** What became of it: "verified", "failed at gate", "dropped" */
export const fate = (row: Row): string => (row.step ? `failed at ${row.step}` : row.state);

const SIGNS: Record<Row["state"], string> = {
  waiting: "running",
  untried: "skipped",
  passed: "done",
  verified: "passed",
  flagged: "waiting",
  failed: "failed",
  repeat: "skipped",
  dropped: "stopped",
};

/** The sign of a state, by its name among the workbench's signs. */
export const signOf = (row: Row): string => SIGNS[row.state];
