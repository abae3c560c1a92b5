/** Completion and hover help: the kernel's language service knows the names; here its answers are put in place. */

import {
  autocompletion,
  type Completion as Choice,
  type CompletionContext,
  type CompletionResult,
} from "@codemirror/autocomplete";
import type { Extension, Text } from "@codemirror/state";
import { hoverTooltip, type Tooltip } from "@codemirror/view";
import type { Completion, Hover } from "../protocol";
import { offsetOf, placeOf } from "./columns";

export type AskComplete = (text: string, line: number, col: number, signal: AbortSignal) => Promise<Completion[]>;
export type AskHover = (text: string, line: number, col: number) => Promise<Hover | null>;

/** The word before the cursor, as the protocol's `Completion.insert` replaces it. */
const WORD = /[\w.]*$/;
const KINDS: readonly string[] = ["name", "operation", "hint", "keyword", "type"];
/** In this order where the words match alike: the sketch's own names are the likeliest. */
const BOOST: Record<string, number> = { name: 2, hint: 1, operation: 1, type: 0, keyword: -1 };

export function choiceOf(one: Completion): Choice {
  return {
    label: one.label,
    type: KINDS.includes(one.kind) ? one.kind : "name",
    boost: BOOST[one.kind] ?? 0,
    ...(one.detail ? { detail: one.detail } : {}),
    ...(one.info ? { info: one.info } : {}),
    ...(one.insert && one.insert !== one.label ? { apply: one.insert } : {}),
  };
}

/** Completions of the word before the cursor; unasked only inside a word or behind a quotation mark or @. */
export function completionSource(ask: AskComplete) {
  return async (context: CompletionContext): Promise<CompletionResult | null> => {
    const line = context.state.doc.lineAt(context.pos);
    const before = line.text.slice(0, context.pos - line.from);
    const word = WORD.exec(before)?.[0] ?? "";
    const invited = /[A-Za-z_][\w.]*$/.test(before) || /["'@]$/.test(before);
    if (!context.explicit && !invited) return null;
    const place = placeOf(context.state.doc, context.pos);
    const abort = new AbortController();
    context.addEventListener("abort", () => abort.abort());
    try {
      const found = await ask(context.state.doc.toString(), place.line, place.col, abort.signal);
      if (!found.length) return null;
      return { from: context.pos - word.length, options: found.map(choiceOf), validFor: /^[\w.]*$/ };
    } catch {
      return null; // no help now is not worth a message: the checker's line says when the kernel does not answer
    }
  };
}

export function completion(ask: AskComplete): Extension {
  return autocompletion({
    override: [completionSource(ask)],
    activateOnTyping: true,
    activateOnTypingDelay: 60,
    icons: true,
    defaultKeymap: true,
  });
}

/** Where a hover's help belongs, clipped to the document; null when it is not about `pos`. */
export function hoverRange(doc: Text, hover: Hover, pos: number): { from: number; to: number } | null {
  const from = offsetOf(doc, hover.from[0], hover.from[1]);
  const to = Math.max(from, offsetOf(doc, hover.to[0], hover.to[1]));
  return from <= pos && pos <= to ? { from, to } : null;
}

export function hoverHelp(ask: AskHover): Extension {
  return hoverTooltip(
    async (view, pos): Promise<Tooltip | null> => {
      const { doc } = view.state;
      const place = placeOf(doc, pos);
      const hover = await ask(doc.toString(), place.line, place.col).catch(() => null);
      if (!hover || !view.state.doc.eq(doc)) return null;
      const range = hoverRange(doc, hover, pos);
      if (!range) return null;
      return { pos: range.from, end: range.to, above: true, create: () => ({ dom: tipOf(hover) }) };
    },
    { hoverTime: 250 },
  );
}

function tipOf(hover: Hover): HTMLElement {
  const box = document.createElement("div");
  box.className = "kl-tip";
  const title = document.createElement("b");
  title.textContent = hover.title;
  box.append(title, hover.text);
  return box;
}
