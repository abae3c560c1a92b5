/**
 * How every editor of the workbench looks: colours come from JupyterLab's variables (light, dark, high contrast), with
 * a light fallback for hosts that have none. What must be told apart is never told by colour alone.
 */

import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const theme = EditorView.theme({
  "&": {
    backgroundColor: "var(--kl-code-back)",
    color: "var(--kl-code-text)",
    fontSize: "var(--jp-code-font-size, 13px)",
    maxHeight: "var(--kl-editor-height, 60vh)",
  },
  "&.cm-focused": { outline: "2px solid var(--kl-accent)", outlineOffset: "-1px" },
  ".cm-scroller": {
    fontFamily: "var(--kl-mono)",
    // JupyterLab's: while its theme changes there is no variable, and an editor that measured other lines keeps them
    lineHeight: "var(--jp-code-line-height, 1.3077)",
    overflow: "auto",
  },
  ".cm-content": { caretColor: "var(--kl-caret)", padding: "4px 0" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--kl-caret)", borderLeftWidth: "1.5px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--kl-selection)",
  },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "var(--kl-line-active)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--kl-code-text)" },
  ".cm-gutters": {
    backgroundColor: "var(--kl-gutter)",
    color: "var(--kl-dim)",
    border: "0",
    borderRight: "1px solid var(--kl-edge)",
  },
  ".cm-lineNumbers .cm-gutterElement": { minWidth: "2.5ch", padding: "0 6px 0 4px" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "transparent", outline: "1px solid var(--kl-dim)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "transparent", outline: "1px dashed var(--kl-bad)" },
  // the dim colour is too faint on an editor's ground
  ".cm-placeholder": { color: "color-mix(in srgb, var(--kl-code-text) 75%, transparent)" },
  ".cm-searchMatch": { backgroundColor: "var(--kl-line-linked)", outline: "1px solid var(--kl-dim)" },
  ".cm-searchMatch-selected": { outline: "2px solid var(--kl-accent)" },
  ".cm-selectionMatch": { backgroundColor: "var(--kl-line-linked)" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--kl-gutter)", border: "1px solid var(--kl-edge)", color: "inherit" },

  ".cm-panels": { backgroundColor: "var(--kl-gutter)", color: "var(--kl-code-text)" },
  ".cm-panels.cm-panels-top": { borderBottom: "1px solid var(--kl-edge)" },
  ".cm-panels.cm-panels-bottom": { borderTop: "1px solid var(--kl-edge)" },
  ".cm-textfield": { backgroundColor: "var(--kl-code-back)", color: "inherit", border: "1px solid var(--kl-edge)" },
  ".cm-button": { background: "var(--kl-code-back)", color: "inherit", border: "1px solid var(--kl-edge)" },
  ".cm-panel.cm-search": { fontFamily: "var(--jp-ui-font-family, system-ui, sans-serif)", padding: "4px 6px" },
  ".cm-panel.cm-search :is(input, button, label)": { fontSize: "var(--jp-ui-font-size1, 13px)" },
  ".cm-panel.cm-search [name=close]": { color: "inherit", border: "0", background: "none" },

  ".cm-tooltip": {
    backgroundColor: "var(--kl-raised)",
    color: "var(--kl-code-text)",
    border: "1px solid var(--kl-edge)",
    borderRadius: "3px",
    boxShadow: "0 2px 8px rgb(0 0 0 / 25%)",
    zIndex: "1000",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {
    fontFamily: "var(--kl-mono)",
    fontSize: "var(--jp-code-font-size, 13px)",
    maxHeight: "14em",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "1px 6px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": {
    backgroundColor: "var(--kl-accent)",
    color: "var(--kl-on-accent)",
  },
  ".cm-tooltip-autocomplete > ul > li[aria-selected] .cm-completionDetail": { color: "inherit" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "bold" },
  ".cm-completionDetail": { color: "var(--kl-dim)", fontStyle: "normal", marginLeft: "1em" },
  ".cm-completionIcon": { opacity: "1", width: "1.4em" },
  ".cm-tooltip.cm-completionInfo": {
    padding: "6px 8px",
    maxWidth: "26em",
    whiteSpace: "pre-wrap",
    fontFamily: "var(--jp-ui-font-family, system-ui, sans-serif)",
  },

  // severities: a glyph in the gutter, a line in a separate style under the text, a word in every message
  ".cm-gutter-lint": { width: "1.2em" },
  ".cm-gutter-lint .cm-gutterElement": { padding: "0 1px" },
  ".cm-lint-marker": { width: "auto", height: "auto", textAlign: "center", fontWeight: "bold", lineHeight: "inherit" },
  ".cm-lint-marker-error": { content: "normal", color: "var(--kl-bad)" },
  ".cm-lint-marker-warning": { content: "normal", color: "var(--kl-warn)" },
  ".cm-lint-marker-info": { content: "normal", color: "var(--kl-info)" },
  ".cm-lint-marker-error::before": { content: "'✖'" },
  ".cm-lint-marker-warning::before": { content: "'▲'" },
  ".cm-lint-marker-info::before": { content: "'ⓘ'" },
  ".cm-lintRange": { backgroundImage: "none", paddingBottom: "0", textDecorationSkipInk: "none" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy 1.5px var(--kl-bad)" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline dashed 1.5px var(--kl-warn)" },
  ".cm-lintRange-info": { backgroundImage: "none", textDecoration: "underline dotted 1.5px var(--kl-info)" },
  ".cm-lintRange-active": { backgroundColor: "var(--kl-line-linked)" },
  ".cm-lintPoint::after": { borderBottomColor: "var(--kl-bad)" },
  ".cm-diagnostic": { padding: "4px 8px", maxWidth: "34em", border: "0", marginLeft: "0" },
  ".cm-tooltip-lint": { fontFamily: "var(--jp-ui-font-family, system-ui, sans-serif)" },

  // differences: a sign in the gutter besides the colour
  "&.cm-merge-b .cm-changedLine, .cm-inlineChangedLine": { background: "var(--kl-added)" },
  "&.cm-merge-b .cm-changedText": { background: "var(--kl-added-text)" },
  // on these the colours of tokens would be faint
  "&.cm-merge-b .cm-changedText *, .cm-deletedChunk .cm-deletedText, .cm-deletedChunk .cm-deletedText *": {
    color: "var(--kl-code-text)",
  },
  ".cm-deletedChunk": { background: "var(--kl-removed)" },
  ".cm-deletedChunk .cm-deletedLine": { textDecoration: "none" },
  ".cm-deletedChunk .cm-deletedText": { background: "var(--kl-removed-text)", textDecoration: "line-through" },
  ".cm-changeGutter": { width: "1.4ch", paddingLeft: "0" },
  ".cm-changeGutter .cm-gutterElement": { textAlign: "center", color: "var(--kl-on-accent)", fontWeight: "bold" },
  "&.cm-merge-b .cm-changedLineGutter": { background: "var(--kl-added-bar)" },
  ".cm-changedLineGutter::before": { content: "'+'" },
  ".cm-deletedLineGutter": { background: "var(--kl-removed-bar)" },
  ".cm-deletedLineGutter::before": { content: "'−'" },
  ".cm-collapsedLines": {
    background: "var(--kl-gutter)",
    color: "var(--kl-dim)",
    borderBlock: "1px dashed var(--kl-edge)",
    padding: "1px 8px",
  },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.controlKeyword, tags.modifier], color: "var(--kl-tok-keyword)", fontWeight: "bold" },
  { tag: tags.definitionKeyword, color: "var(--kl-tok-keyword)", fontWeight: "bold" },
  { tag: tags.comment, color: "var(--kl-tok-comment)", fontStyle: "italic" },
  { tag: tags.annotation, color: "var(--kl-accent)", fontWeight: "bold" },
  { tag: [tags.string, tags.character], color: "var(--kl-tok-string)" },
  { tag: tags.special(tags.string), color: "var(--kl-tok-hint)" },
  { tag: [tags.number, tags.integer, tags.float], color: "var(--kl-tok-number)" },
  { tag: [tags.atom, tags.bool, tags.null], color: "var(--kl-tok-atom)" },
  { tag: [tags.meta, tags.processingInstruction], color: "var(--kl-tok-meta)" },
  { tag: [tags.typeName, tags.className, tags.standard(tags.typeName)], color: "var(--kl-tok-type)" },
  { tag: tags.definition(tags.className), color: "var(--kl-tok-def)", fontWeight: "bold" },
  { tag: tags.function(tags.variableName), color: "var(--kl-tok-def)" },
  { tag: [tags.standard(tags.variableName), tags.standard(tags.name)], color: "var(--kl-tok-builtin)" },
  { tag: tags.definition(tags.variableName), color: "var(--kl-tok-def)" },
  { tag: tags.special(tags.variableName), color: "var(--kl-tok-tensor)", fontWeight: "bold" },
  { tag: tags.constant(tags.variableName), color: "var(--kl-tok-atom)" },
  { tag: tags.propertyName, color: "var(--kl-tok-property)" },
  { tag: tags.labelName, color: "var(--kl-tok-meta)" },
  { tag: [tags.operator, tags.arithmeticOperator], color: "var(--kl-tok-operator)" },
  { tag: tags.invalid, color: "var(--kl-bad)" },
]);

export const appearance: Extension = [theme, syntaxHighlighting(colours)];
