/**
 * Pins as they stand in the text: `#: pin` at the end of a line (kernellab/sketch/syntax/layout.py).
 *
 * They are read from the text and not from the checker's answer, so that a pin is drawn in the same frame in which it
 * is set.
 */

const PIN = "#: pin";

/** Where the comment of a line begins, or -1: a # inside a string begins none. */
export function commentStart(line: string): number {
  let quote = "";
  for (let index = 0; index < line.length; index += 1) {
    const mark = line[index] ?? "";
    if (quote) {
      if (mark === quote) quote = "";
    } else if (mark === '"' || mark === "'") quote = mark;
    else if (mark === "#") return index;
  }
  return -1;
}

export function isPinned(line: string): boolean {
  const at = commentStart(line);
  return at >= 0 && line.slice(0, at).trim() !== "" && line.trimEnd().endsWith(PIN);
}

/** A statement or a declaration can be pinned; blank lines, comments and the sketch's own braces cannot. */
export function isPinnable(line: string): boolean {
  const at = commentStart(line);
  const code = (at < 0 ? line : line.slice(0, at)).trim();
  return code !== "" && code !== "}" && !/^sketch\b.*\{$/.test(code);
}

/** The line with its pin set or taken off; a comment before the pin stays. */
export function withPin(line: string, on: boolean): string {
  if (isPinned(line) === on) return line;
  const kept = line.trimEnd();
  return on ? `${kept}  ${PIN}` : kept.slice(0, kept.length - PIN.length).trimEnd();
}

/** Numbers (from 1) of the pinned lines. */
export function pinnedLines(text: string): number[] {
  return text.split("\n").flatMap((line, index) => (isPinned(line) ? [index + 1] : []));
}
