/**
 * The timeline's shape: rows in order of time, each on a lane.
 *
 * A turn continues in its parent's lane when it is the parent's first child; every other child opens a separate lane,
 * which leaves the parent's row and is free again behind the branch's last turn.
 */
import type { TurnRow } from "./protocol";

/** More lanes than these share the last one: a gutter must stay narrow. */
export const LANES = 6;

export interface Line {
  row: TurnRow;
  lane: number;
  /** the parent's lane, where this row opens a branch */
  from: number | null;
  /** bit sets of lanes: drawn from the row's top to its middle, and from its middle to its bottom */
  above: number;
  below: number;
  /** lanes that leave this row */
  opens: number;
  /** forks on the way here, from 1 */
  level: number;
  /** for a row that opens a branch */
  fold: "open" | "closed" | null;
  /** rows that a closed branch hides */
  hidden: number;
  /** the row up to which the shared last lane is drawn from here */
  drawn: number;
}

export interface Filter {
  which: "all" | "path" | "verified" | "failed" | "human";
  text: string;
}

export const EVERYTHING: Filter = { which: "all", text: "" };

export function passes(row: TurnRow, filter: Filter): boolean {
  if (filter.which === "path" && !row.on_path) return false;
  if (filter.which === "verified" && row.state !== "passed") return false;
  if (filter.which === "failed" && row.state !== "failed") return false;
  if (filter.which === "human" && row.author !== "human") return false;
  const wanted = filter.text.trim().toLowerCase();
  return (
    wanted === "" || `${row.number} ${row.role} ${row.author} ${row.state} ${row.note}`.toLowerCase().includes(wanted)
  );
}

/** Lines of the rows that are shown. A row whose parent is hidden is attached to the nearest ancestor that is shown. */
export function layout(rows: readonly TurnRow[], folded: ReadonlySet<string>, filter: Filter = EVERYTHING): Line[] {
  const { shown, hidden } = visible(rows, folded, filter);
  const index = new Map(shown.map((row, at) => [row.id, at]));
  const parents = ancestors(rows, index, shown);
  const firstChild = new Array<number>(shown.length).fill(-1);
  for (const [at, parent] of parents.entries()) if (parent >= 0 && firstChild[parent] === -1) firstChild[parent] = at;
  const ends = chainEnds(firstChild);

  const lines: Line[] = [];
  const busyUntil: number[] = [];
  for (const [at, row] of shown.entries()) {
    const parent = parents[at] ?? -1;
    const above = lines[parent];
    const follows = above !== undefined && firstChild[parent] === at;
    const start = above ? parent : at;
    const lane = follows ? above.lane : freeLane(busyUntil, start);
    busyUntil[lane] = Math.max(busyUntil[lane] ?? -1, ends[at] ?? at);
    const opens = above !== undefined && !follows;
    lines.push({
      row,
      lane,
      from: opens ? above.lane : null,
      above: 0,
      below: 0,
      opens: 0,
      level: above ? above.level + (opens ? 1 : 0) : 1,
      fold: folded.has(row.id) ? "closed" : opens ? "open" : null,
      hidden: hidden.get(row.id) ?? 0,
      drawn: Number.POSITIVE_INFINITY,
    });
  }
  for (const [at, line] of lines.entries()) connect(lines, at, parents[at] ?? -1, line);
  return lines;
}

export interface Tree {
  lines: Line[];
  /** a row's place among the lines */
  index: ReadonlyMap<string, number>;
  lanes: number;
  /** nothing is folded or filtered away */
  whole: boolean;
}

/**
 * The tree of the rows. Where only what rows say has changed, not which they are, `last` is taken over: a turn that
 * runs changes its row many times, and a long session has thousands.
 */
export function tree(rows: readonly TurnRow[], folded: ReadonlySet<string>, filter: Filter, last: Tree | null): Tree {
  const whole = folded.size === 0 && filter.which === "all" && filter.text.trim() === "";
  if (whole && last?.whole && sameShape(last.lines, rows)) {
    const lines = last.lines.map((line, at) => (line.row === rows[at] ? line : { ...line, row: rows[at] as TurnRow }));
    return { ...last, lines };
  }
  const lines = layout(rows, folded, filter);
  return {
    lines,
    index: new Map(lines.map((line, at) => [line.row.id, at])),
    lanes: lines.reduce((most, line) => Math.max(most, line.lane), 0) + 1,
    whole,
  };
}

const sameShape = (lines: readonly Line[], rows: readonly TurnRow[]): boolean =>
  lines.length === rows.length &&
  lines.every(({ row }, at) => row === rows[at] || (row.id === rows[at]?.id && row.parent === rows[at]?.parent));

/** Draws the edge from a row up to its parent into the rows between them. */
function connect(lines: Line[], at: number, parent: number, line: Line): void {
  if (parent < 0) return;
  const bit = 1 << line.lane;
  const top = lines[parent] as Line;
  if (line.from === null) top.below |= bit;
  else top.opens |= bit;
  line.above |= bit;
  for (let between = at - 1; between > parent; between -= 1) {
    const passed = lines[between] as Line;
    // many branches share the last lane: what one has drawn the next need not draw again
    if (line.lane === LANES - 1 && passed.above & passed.below & bit && passed.drawn <= parent) break;
    passed.above |= bit;
    passed.below |= bit;
    if (line.lane === LANES - 1) passed.drawn = Math.min(passed.drawn, parent);
  }
}

function freeLane(busyUntil: readonly number[], start: number): number {
  for (let lane = 0; lane < LANES - 1; lane += 1) {
    if ((busyUntil[lane] ?? -1) < start) return lane;
  }
  return LANES - 1;
}

/** For each row the last row of the chain of first children that it heads. */
function chainEnds(firstChild: readonly number[]): number[] {
  const ends = firstChild.map((_, at) => at);
  for (let at = firstChild.length - 1; at >= 0; at -= 1) {
    const child = firstChild[at] ?? -1;
    if (child >= 0) ends[at] = ends[child] ?? child;
  }
  return ends;
}

function visible(rows: readonly TurnRow[], folded: ReadonlySet<string>, filter: Filter) {
  const shown: TurnRow[] = [];
  const under = new Map<string, string>();
  const hidden = new Map<string, number>();
  for (const row of rows) {
    const fold = row.parent === null ? undefined : folded.has(row.parent) ? row.parent : under.get(row.parent);
    if (fold !== undefined) {
      under.set(row.id, fold);
      hidden.set(fold, (hidden.get(fold) ?? 0) + 1);
    } else if (passes(row, filter)) {
      shown.push(row);
    }
  }
  return { shown, hidden };
}

/** The index of each shown row's nearest shown ancestor, -1 where there is none. */
function ancestors(rows: readonly TurnRow[], index: ReadonlyMap<string, number>, shown: readonly TurnRow[]): number[] {
  const nearest = new Map<string, number>();
  for (const row of rows) {
    const parent = row.parent === null ? -1 : (index.get(row.parent) ?? nearest.get(row.parent) ?? -1);
    nearest.set(row.id, parent);
  }
  return shown.map((row) => nearest.get(row.id) ?? -1);
}

/** The fold that hides a row, so that a row that must be seen can be unfolded. */
export function foldsOver(rows: readonly TurnRow[], folded: ReadonlySet<string>, id: string): string[] {
  const parents = new Map(rows.map((row) => [row.id, row.parent]));
  const found: string[] = [];
  for (let at = parents.get(id); at; at = parents.get(at)) if (folded.has(at)) found.push(at);
  return found;
}
