/** The checker's findings as CodeMirror shows them. */

import type { Diagnostic as Mark } from "@codemirror/lint";
import type { Text } from "@codemirror/state";
import type { EditorView } from "@codemirror/view";
import type { Diagnostic } from "../protocol";
import { offsetOf } from "./columns";

export type Severity = Diagnostic["severity"];

/** Glyph and word show a severity; colour only adds to it. */
export const GLYPHS: Record<Severity, string> = { error: "✖", warning: "▲", info: "ⓘ" };

const RANK: Record<Severity, number> = { error: 0, warning: 1, info: 2 };

/** An unknown severity of a newer kernel is treated as information. */
export function severityOf(found: Diagnostic): Severity {
  return found.severity in RANK ? found.severity : "info";
}

/** By line, the worst first within one. */
export function inOrder(found: Diagnostic[]): Diagnostic[] {
  return [...found].sort((a, b) => a.line - b.line || RANK[severityOf(a)] - RANK[severityOf(b)] || a.col - b.col);
}

/** Findings of the turn's own record come after the checker's, each told once. */
export function merged(checked: Diagnostic[], recorded: Diagnostic[]): Diagnostic[] {
  const key = (one: Diagnostic) => `${one.line}:${one.code}:${one.message}`;
  const known = new Set(checked.map(key));
  return inOrder([...checked, ...recorded.filter((one) => !known.has(key(one)))]);
}

/**
 * Where findings stand in the document. A place outside it is moved to the nearest one inside; a finding without an
 * end takes the word that it points at, or else the line, so that there is always something to see.
 */
export function marksOf(doc: Text, found: Diagnostic[]): Mark[] {
  return found.map((one) => {
    const [from, to] = rangeOf(doc, one);
    const { fix } = one;
    const actions = !fix
      ? []
      : [
          {
            name: `Change to ${fix}`,
            apply: (editor: EditorView, from: number, to: number) =>
              editor.dispatch({ changes: { from, to, insert: fix } }),
          },
        ];
    return { from, to, severity: severityOf(one), message: wordsOf(one), renderMessage: () => messageOf(one), actions };
  });
}

export function rangeOf(doc: Text, one: Diagnostic): [number, number] {
  let from = offsetOf(doc, one.line, one.col);
  let to = one.end_col === null ? from : offsetOf(doc, one.end_line ?? one.line, one.end_col);
  const line = doc.lineAt(from);
  if (to <= from) {
    const word = /^\w+/.exec(line.text.slice(from - line.from));
    to = from + (word?.[0].length ?? 0);
  }
  if (to === from && from < line.to && /\S/.test(line.text[from - line.from] ?? "")) to = from + 1;
  if (to === from && line.length) {
    from = line.from + line.text.length - line.text.trimStart().length;
    to = line.to;
  }
  return [from, to];
}

/** One sentence for screen readers: "error SK012: message Remedy". */
export function wordsOf(one: Diagnostic): string {
  const head = [severityOf(one), one.code].filter(Boolean).join(" ");
  return [`${head}: ${one.message}`, one.remedy].filter(Boolean).join(" ");
}

function messageOf(one: Diagnostic): HTMLElement {
  const box = document.createElement("div");
  box.className = `kl-ed-${severityOf(one)}`;
  const glyph = document.createElement("span");
  glyph.className = "kl-ed-glyph";
  glyph.textContent = `${GLYPHS[severityOf(one)]} ${severityOf(one)}`;
  box.append(glyph, ` ${one.code} ${one.message}`);
  if (one.remedy) {
    const remedy = document.createElement("span");
    remedy.className = "kl-tip-remedy";
    remedy.textContent = one.remedy;
    box.append(remedy);
  }
  return box;
}

/** "1 error, 2 warnings" */
export function countOf(found: Diagnostic[]): string {
  const parts = (["error", "warning", "info"] as const).flatMap((severity) => {
    const number = found.filter((one) => severityOf(one) === severity).length;
    const word = severity === "info" ? (number === 1 ? "remark" : "remarks") : severity + (number === 1 ? "" : "s");
    return number ? [`${number} ${word}`] : [];
  });
  return parts.join(", ");
}
