/** What every editor of the workbench has, whatever its language: keys, selection, and manners in a notebook. */

import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, indentOnInput, indentUnit } from "@codemirror/language";
import { lintKeymap } from "@codemirror/lint";
import { search, searchKeymap } from "@codemirror/search";
import { Annotation, EditorState, type Extension } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
} from "@codemirror/view";
import { isSave } from "../keys";
import { appearance } from "./appearance";

/** Marks a change that did not come from the person's hands. */
export const Outside = Annotation.define<boolean>();

/** For people who cannot see that Tab indents. */
export const TAB_HELP = "Tab indents; press Escape, then Tab, to leave the editor.";

export function basics(label: string, help: string = TAB_HELP): Extension {
  return [
    appearance,
    highlightSpecialChars(),
    history(),
    drawSelection(),
    highlightActiveLine(),
    highlightActiveLineGutter(),
    bracketMatching(),
    closeBrackets(),
    indentOnInput(),
    indentUnit.of("    "),
    EditorState.tabSize.of(4),
    search({ top: true }),
    keymap.of([
      ...closeBracketsKeymap,
      ...defaultKeymap.filter((binding) => binding.key !== "Mod-Enter"),
      ...searchKeymap,
      ...historyKeymap,
      ...lintKeymap,
      indentWithTab,
    ]),
    EditorView.contentAttributes.of({
      "aria-label": label,
      "aria-description": help,
      spellcheck: "false",
      tabindex: "0",
    }),
  ];
}

/** A text that is only read keeps its caret, so that it can be walked through and searched by keyboard. */
export function readOnly(on: boolean): Extension {
  return on ? [EditorState.readOnly.of(true), EditorView.contentAttributes.of({ "aria-readonly": "true" })] : [];
}

/**
 * Keys typed in an editor are the editor's: a notebook would take them as its commands. Its own listeners run in the
 * capturing phase and look for the attribute; those of other hosts hear nothing because the event ends here. "Save" alone passes: the view hands it to the page.
 */
export function keepKeys(host: HTMLElement): () => void {
  host.dataset.lmSuppressShortcuts = "true";
  const stop = (event: KeyboardEvent) => {
    if (!isSave(event)) event.stopPropagation();
  };
  const kinds = ["keydown", "keypress", "keyup"] as const;
  for (const kind of kinds) host.addEventListener(kind, stop);
  return () => {
    for (const kind of kinds) host.removeEventListener(kind, stop);
  };
}

/** The smallest single change that makes `before` into `after`: carets and marks outside it stay where they are. */
export function changeOf(before: string, after: string): { from: number; to: number; insert: string } | null {
  if (before === after) return null;
  let from = 0;
  const shorter = Math.min(before.length, after.length);
  while (from < shorter && before[from] === after[from]) from += 1;
  let tail = 0;
  while (tail < shorter - from && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  return { from, to: before.length - tail, insert: after.slice(from, after.length - tail) };
}
