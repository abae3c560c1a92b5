/**
 * The gutter that says how much of the time a line takes: its share of the Verifier's samples, as a number and a bar.
 *
 * Like origins, shares are marks in the document, so they move with what a person types.
 */

import { type Extension, RangeSet, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { type EditorView, GutterMarker, gutter } from "@codemirror/view";
import { percent } from "../format";
import type { HeatLine } from "../protocol";

class Share extends GutterMarker {
  constructor(
    readonly share: number,
    readonly title: string,
  ) {
    super();
  }

  override eq(other: Share): boolean {
    return other.share === this.share && other.title === this.title;
  }

  override toDOM(): Node {
    const mark = document.createElement("span");
    mark.textContent = percent(this.share);
    mark.title = this.title;
    mark.style.setProperty("--kl-share", percent(this.share));
    return mark;
  }
}

const setShares = StateEffect.define<RangeSet<Share>>();

const field = StateField.define<RangeSet<Share>>({
  create: () => RangeSet.empty,
  update(marks, transaction) {
    for (const effect of transaction.effects) if (effect.is(setShares)) return effect.value;
    return marks.map(transaction.changes);
  },
});

export function heatGutter(): Extension {
  return [field, gutter({ class: "kl-heat", markers: (view) => view.state.field(field) })];
}

export function showHeat(view: EditorView, lines: readonly HeatLine[]): void {
  const { doc } = view.state;
  const builder = new RangeSetBuilder<Share>();
  for (const { line, share, text } of [...lines].sort((a, b) => a.line - b.line)) {
    if (line < 1 || line > doc.lines) continue;
    const { from } = doc.line(line);
    builder.add(from, from, new Share(share, text));
  }
  view.dispatch({ effects: setShares.of(builder.finish()) });
}
