/** The candidates in the order that a person chose, filtered; pure. */
import type { Row } from "./protocol";

export type Column = "number" | "round" | "island" | "operator" | "value" | "state" | "seconds";
export type Which = "all" | "good" | "verified" | "failed" | "mine";

export interface Order {
  column: Column;
  down: boolean;
}

const GOOD = new Set<Row["state"]>(["passed", "verified"]);

const KEPT: Record<Which, (row: Row) => boolean> = {
  all: () => true,
  good: (row) => GOOD.has(row.state),
  verified: (row) => row.state === "verified",
  failed: (row) => row.state === "failed" || row.state === "flagged",
  mine: (row) => row.author === "human" || row.protected,
};

/** `faster` says of two values which is the better one: a speedup is better high, a time low. */
export function arranged(rows: Iterable<Row>, order: Order, which: Which, measure: "speedup" | "modelled"): Row[] {
  const kept = [...rows].filter(KEPT[which]);
  const sign = order.down ? -1 : 1;
  const of = KEYS[order.column];
  // a time is better the lower it is; "down" means the best first for both
  const way = order.column === "value" && measure === "modelled" ? -sign : sign;
  kept.sort((a, b) => {
    const x = of(a);
    const y = of(b);
    if (x === y) return a.number - b.number;
    if (x === null) return 1;
    if (y === null) return -1;
    return x < y ? -way : way;
  });
  return kept;
}

const KEYS: Record<Column, (row: Row) => number | string | null> = {
  number: (row) => row.number,
  round: (row) => row.round,
  island: (row) => row.island,
  operator: (row) => row.operator,
  // as in a session: a middle of few calls on a busy machine makes no candidate the fastest
  value: (row) => (row.value === null ? null : row.low || row.value),
  state: (row) => row.step || row.state,
  seconds: (row) => row.seconds,
};

/** Ancestors by first parent, the oldest first, and the candidate itself. */
export function lineage(rows: ReadonlyMap<number, Row>, number: number): Row[] {
  const line: Row[] = [];
  const seen = new Set<number>();
  for (let at = rows.get(number); at && !seen.has(at.number); at = rows.get(at.parents[0] ?? -1)) {
    seen.add(at.number);
    line.unshift(at);
  }
  return line;
}

/** Those that a candidate is a further parent of, as of a cross: they stand in the tree under their first parent. */
export function alsoParentOf(rows: ReadonlyMap<number, Row>, number: number): number[] {
  const found = [...rows.values()].filter(({ parents }) => parents.indexOf(number) > 0);
  return found.map((row) => row.number).sort((a, b) => a - b);
}

/** Each candidate's children by first parent, in order of number. */
export function offspring(rows: ReadonlyMap<number, Row>): Map<number, Row[]> {
  const found = new Map<number, Row[]>();
  for (const row of [...rows.values()].sort((a, b) => a.number - b.number)) {
    const parent = row.parents[0];
    if (parent === undefined || parent === row.number) continue;
    const known = found.get(parent);
    if (known) known.push(row);
    else found.set(parent, [row]);
  }
  return found;
}
