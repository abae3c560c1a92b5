/**
 * Places as the kernel counts them and as CodeMirror does.
 *
 * The kernel counts lines and columns from 1, a column being one character of Python (a code point) after tabs were
 * widened to the next multiple of 4. CodeMirror counts UTF-16 units from the start of the document.
 */

import type { Text } from "@codemirror/state";

const TAB = 4;

/** The offset in the document; a place outside it becomes the nearest one inside. */
export function offsetOf(doc: Text, line: number, col: number): number {
  const at = doc.line(within(Math.trunc(line) || 1, 1, doc.lines));
  let column = 1;
  let index = 0;
  while (index < at.text.length && column < col) {
    const point = at.text.codePointAt(index) ?? 0;
    column += point === 9 ? TAB - ((column - 1) % TAB) : 1;
    index += point > 0xffff ? 2 : 1;
  }
  return at.from + index;
}

/** The kernel's line and column of an offset. */
export function placeOf(doc: Text, offset: number): { line: number; col: number } {
  const at = doc.lineAt(within(offset, 0, doc.length));
  let col = 1;
  for (const character of at.text.slice(0, offset - at.from)) {
    col += character === "\t" ? TAB - ((col - 1) % TAB) : 1;
  }
  return { line: at.number, col };
}

function within(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}
