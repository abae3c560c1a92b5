import type { TurnRow } from "./protocol";

/** All rows of the timeline: a row of `changed` replaces the one of the same id in `turns`, new ones follow. */
export function rowsOf(turns: TurnRow[], changed: TurnRow[]): TurnRow[] {
  const newer = new Map(changed.map((row) => [row.id, row]));
  const known = new Set(turns.map((row) => row.id));
  return [...turns.map((row) => newer.get(row.id) ?? row), ...changed.filter((row) => !known.has(row.id))];
}
