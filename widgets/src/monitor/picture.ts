/** The chart as numbers: where each candidate is drawn, the axes, the step line of the best; pure. */
import { ticks, toPixels } from "../chart";
import { three } from "../format";
import type { Head, Round, Row } from "./protocol";

/** One an island, 3 to 1 or better against light and dark grounds; those of the report. */
export const COLOURS = [
  "#2f7ed8",
  "#d8762f",
  "#3f9b3f",
  "#b04fb0",
  "#a08a10",
  "#c0392b",
  "#17a2b8",
  "#7f8c8d",
] as const;
export const colourOf = (island: number): string => COLOURS[island % COLOURS.length] as string;

export type By = "evaluation" | "round";

export interface Place {
  number: number;
  x: number;
  y: number;
  island: number;
  state: Row["state"];
  /** ends of its interval: a verdict's, or of the calls that ranked it */
  span: [number, number] | null;
}

export interface Mark {
  at: number;
  text: string;
}

export interface Picture {
  places: Place[];
  /** those without a value: ticks at the foot */
  failed: Place[];
  across: Mark[];
  up: Mark[];
  lines: { name: string; y: number }[];
  /** the verified best's steps, from left to right */
  steps: [number, number][];
  left: number;
  right: number;
  top: number;
  foot: number;
}

const LEFT = 54;
const RIGHT = 12;
const TOP = 10;
const FOOT = 34;
/** a level within this factor of the candidates is drawn in its place */
const NEAR = 1.3;

interface Wanted {
  rows: Iterable<Row>;
  head: Pick<Head, "measure" | "lines" | "improvements">;
  rounds: readonly Round[];
  by: By;
  width: number;
  height: number;
}

export function picture({ rows, head, rounds, by, width, height }: Wanted): Picture {
  const known = new Map<number, Row>();
  let most = 1;
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  for (const row of rows) {
    if (row.at === null) continue;
    known.set(row.number, row);
    most = Math.max(most, by === "round" ? row.round : row.at);
    if (row.value !== null && row.value > 0) {
      const [least, best] =
        row.state === "verified" && row.low && row.high ? [row.low, row.high] : [row.value, row.value];
      low = Math.min(low, row.value, least);
      high = Math.max(high, row.value, best);
    }
  }
  const nothing = high === 0;
  // the axis shows how candidates differ: a level that is far from all of them stands at its edge, with an arrow
  const [least, far] = nothing ? [0, Number.POSITIVE_INFINITY] : [low / NEAR, high * NEAR];
  for (const line of head.lines) {
    if (line.value < least || line.value > far) continue;
    low = Math.min(low, line.value);
    high = Math.max(high, line.value);
  }
  // an axis of figures that nothing has yet would be read as some
  if (nothing) [low, high] = [0.5, 2];
  // room above and below, on the logarithmic scale
  const room = Math.max(1.04, (high / low) ** 0.05);
  [low, high] = [low / room, high * room];
  const [left, right, top, foot] = [LEFT, width - RIGHT, TOP, height - FOOT];
  // the faster is up: a modelled time falls
  const y = head.measure === "modelled" ? toPixels(low, high, top, foot, true) : toPixels(low, high, foot, top, true);
  const x =
    by === "round" ? toPixels(-0.5, most + 0.5, left, right) : toPixels(1, Math.max(2, most), left + 4, right - 4);
  const unit = head.measure === "modelled" ? "" : "x";
  const across = (row: Row) => (by === "round" ? x(row.round + spread(row.number)) : x(row.at ?? 1));
  const inside = (value: number) => Math.min(foot, Math.max(top, y(value)));
  const spanOf = (row: Row): [number, number] | null =>
    head.measure !== "modelled" && row.low && row.high ? [inside(row.low), inside(row.high)] : null;
  const named = (line: Head["lines"][number]): { name: string; y: number } => {
    const at = inside(line.value);
    if (line.value >= low && line.value <= high) return { name: line.name, y: at };
    return { name: `${at === top ? "\u2191" : "\u2193"} ${line.name}, ${three(line.value)}${unit}`, y: at };
  };
  const places: Place[] = [];
  const failed: Place[] = [];
  for (const row of known.values()) {
    const place = { number: row.number, x: across(row), y: foot, island: row.island, state: row.state, span: null };
    if (row.value !== null && row.value > 0) places.push({ ...place, y: y(row.value), span: spanOf(row) });
    else failed.push(place);
  }
  return {
    places,
    failed,
    across: (nothing ? [] : by === "round" ? whole(most) : ticks(1, Math.max(2, most)).map(Math.round)).map(
      (value) => ({
        at: x(value),
        text: by === "round" && value === 0 ? "seeds" : String(value),
      }),
    ),
    up: nothing ? [] : levels(low, high).map((value) => ({ at: y(value), text: `${three(value)}${unit}` })),
    lines: nothing ? [] : head.lines.map(named),
    steps: stairs(by === "round" ? byRound(rounds) : head.improvements, known, x, y, right),
    left,
    right,
    top,
    foot,
  };
}

/** Round values; a narrow range has no two of a logarithmic axis. */
function levels(low: number, high: number): number[] {
  const found = ticks(low, high, true, 5);
  return found.length > 1 ? found : ticks(low, high, false, 4);
}

/** [round, its best] where it changed. */
function byRound(rounds: readonly Round[]): number[][] {
  return rounds.flatMap((round) => (round.best === null ? [] : [[round.round, round.best]]));
}

/** Always the same place for a candidate of a round, so that those of a round lie next to each other. */
const spread = (number: number): number => (((number * 0.618034) % 1) - 0.5) * 0.7;

const whole = (most: number): number[] => {
  const stride = Math.max(1, Math.ceil((most + 1) / 12));
  return Array.from({ length: Math.floor(most / stride) + 1 }, (_, at) => at * stride);
};

function stairs(
  changes: readonly number[][],
  known: ReadonlyMap<number, Row>,
  x: (value: number) => number,
  y: (value: number) => number,
  right: number,
): [number, number][] {
  const found: [number, number][] = [];
  for (const [at, number] of changes) {
    const value = known.get(number ?? -1)?.value;
    if (at === undefined || !value) continue;
    const before = found.at(-1);
    if (before) found.push([x(at), before[1]]);
    found.push([x(at), y(value)]);
  }
  const last = found.at(-1);
  if (last) found.push([right, last[1]]);
  return found;
}

/** The candidate nearest to a point, within `reach` pixels. */
export function nearest(places: readonly Place[], x: number, y: number, reach = 14): Place | null {
  let found: Place | null = null;
  let best = reach * reach;
  for (const place of places) {
    const away = (place.x - x) ** 2 + (place.y - y) ** 2;
    if (away <= best) [found, best] = [place, away];
  }
  return found;
}
