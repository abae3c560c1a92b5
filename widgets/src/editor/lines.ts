/** Whole lines that are marked: pinned ones, and those that a person points at in the other text. */

import { type Extension, RangeSetBuilder, StateEffect, StateField, type Text } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, GutterMarker, gutter, ViewPlugin } from "@codemirror/view";
import { isPinnable, isPinned } from "./pins";

const linked = Decoration.line({ class: "kl-linked-line" });
const pinned = Decoration.line({ class: "kl-pinned-line", attributes: { "data-pinned": "true" } });

const setLinked = StateEffect.define<readonly number[]>();

/** The lines that belong to what is pointed at elsewhere. */
export const linkedLines: Extension = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    for (const effect of transaction.effects) if (effect.is(setLinked)) return marked(transaction.newDoc, effect.value);
    return marks.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** Marks `lines` (from 1; those that the text does not have are left out), and brings the first into sight. */
export function showLinked(view: EditorView, lines: readonly number[], scroll: boolean): void {
  const effects: StateEffect<unknown>[] = [setLinked.of(lines)];
  const first = lines.find((line) => line >= 1 && line <= view.state.doc.lines);
  if (scroll && first !== undefined) {
    effects.push(EditorView.scrollIntoView(view.state.doc.line(first).from, { y: "nearest", yMargin: 40 }));
  }
  view.dispatch({ effects });
}

function marked(doc: Text, lines: readonly number[]): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  for (const line of [...new Set(lines)].sort((a, b) => a - b)) {
    if (line < 1 || line > doc.lines) continue;
    const { from } = doc.line(line);
    builder.add(from, from, linked);
  }
  return builder.finish();
}

/** Tells which line the mouse is over, null when it leaves the text. */
export function pointing(tell: (line: number | null) => void): Extension {
  let last: number | null = null;
  const say = (line: number | null) => {
    if (line === last) return;
    last = line;
    tell(line);
  };
  return EditorView.domEventHandlers({
    mousemove(event, view) {
      const pos = view.posAtCoords({ x: event.clientX, y: event.clientY });
      say(pos === null ? null : view.state.doc.lineAt(pos).number);
    },
    mouseleave() {
      say(null);
    },
  });
}

/** Puts the caret at the start of a line and shows it in the middle; a line that does not exist is the last one. */
export function goToLine(view: EditorView, line: number): void {
  const at = view.state.doc.line(Math.min(Math.max(1, line), view.state.doc.lines));
  view.dispatch({ selection: { anchor: at.from }, effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
  view.focus();
}

const PIN_SHAPE =
  "M9.6 1.2 14.8 6.4 13.6 7.6 12.9 7.4 10.2 10.1 10.2 12.9 9 14.1 5.9 11 2.2 14.7 1.3 13.8 5 10.1 1.9 7 3.1 5.8 5.9 5.8 8.6 3.1 8.4 2.4Z";

class PinMarker extends GutterMarker {
  constructor(readonly on: boolean) {
    super();
  }

  override eq(other: PinMarker): boolean {
    return other.on === this.on;
  }

  override toDOM(): Node {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("class", this.on ? "kl-pin kl-pin-on" : "kl-pin kl-pin-off");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", PIN_SHAPE);
    path.setAttribute("fill", this.on ? "currentColor" : "none");
    path.setAttribute("stroke", "currentColor");
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = this.on
      ? "Pinned: click to let agents change this line again (Alt P)"
      : "Pin: agents may not change this line (Alt P)";
    svg.append(title, path);
    return svg;
  }
}

const ON = new PinMarker(true);
const OFF = new PinMarker(false);

/** The pins of the sketch: shaded lines, and a gutter that is clicked; `may` says whether a pin can be changed now. */
export function pinGutter(may: () => boolean, toggle: (line: number) => void): Extension {
  return [
    gutter({
      class: "kl-pins",
      lineMarker(view, block) {
        const { text } = view.state.doc.lineAt(block.from);
        if (isPinned(text)) return ON;
        return may() && isPinnable(text) ? OFF : null;
      },
      lineMarkerChange: (update) => update.docChanged,
      initialSpacer: () => OFF,
      domEventHandlers: {
        mousedown(view, block) {
          if (may()) toggle(view.state.doc.lineAt(block.from).number);
          return true;
        },
      },
    }),
    pinnedShade,
  ];
}

const pinnedShade = ViewPlugin.define(
  (view) => ({
    marks: shade(view),
    update(update) {
      if (update.docChanged || update.viewportChanged) this.marks = shade(update.view);
    },
  }),
  { decorations: (plugin) => plugin.marks },
);

function shade(view: EditorView): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  for (const { from, to } of view.visibleRanges) {
    for (let pos = from; pos <= to; ) {
      const line = view.state.doc.lineAt(pos);
      if (isPinned(line.text)) builder.add(line.from, line.from, pinned);
      pos = line.to + 1;
    }
  }
  return builder.finish();
}
