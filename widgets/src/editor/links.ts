/**
 * Which lines of the sketch and of the code belong together, and which of them a person points at.
 *
 * Both panels of one view share the pointed-at sketch lines; each draws them in its own text.
 */

import { type Signal, signal } from "@preact/signals";
import type { View } from "../view";

export type LineMap = Readonly<Record<string, Readonly<Record<number, number>>>>;

export interface Pointer {
  /** lines of the sketch, from 1 */
  lines: readonly number[];
  /** where the person points: that text does not scroll by itself */
  origin: "sketch" | "code";
}

const pointers = new WeakMap<View, Signal<Pointer | null>>();

export function pointerOf(view: View): Signal<Pointer | null> {
  let found = pointers.get(view);
  if (!found) {
    found = signal<Pointer | null>(null);
    pointers.set(view, found);
  }
  return found;
}

/** The sketch line that a line of a generated file comes from. */
export function sketchLineOf(map: LineMap, file: string, line: number): number | null {
  return map[file]?.[line] ?? null;
}

/** The lines of a generated file that come from any of the sketch's `lines`, in order. */
export function codeLinesOf(map: LineMap, file: string, lines: readonly number[]): number[] {
  const wanted = new Set(lines);
  return Object.entries(map[file] ?? {})
    .filter(([, sketch]) => wanted.has(sketch))
    .map(([line]) => Number(line))
    .sort((a, b) => a - b);
}

/** "lines 4-6, 9 of kernel.cpp" for each file that has any; "" when none has. */
export function generatedWords(map: LineMap, line: number): string {
  return Object.keys(map)
    .flatMap((file) => {
      const spans = spansOf(codeLinesOf(map, file, [line]));
      if (!spans) return [];
      return [`${/[-,]/.test(spans) ? "lines" : "line"} ${spans} of ${file}`];
    })
    .join("; ");
}

/** [1, 2, 3, 7] -> "1-3, 7" */
export function spansOf(lines: readonly number[]): string {
  const spans: [number, number][] = [];
  for (const line of lines) {
    const last = spans.at(-1);
    if (last && line === last[1] + 1) last[1] = line;
    else spans.push([line, line]);
  }
  return spans.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(", ");
}
