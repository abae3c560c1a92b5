/**
 * The gutter that says where a line comes from: its number in the sketch (or, for an artefact, in the source).
 *
 * Origins are marks in the document, so they move with what a person types.
 */

import {
  type EditorState,
  type Extension,
  RangeSet,
  RangeSetBuilder,
  StateEffect,
  StateField,
  type Text,
} from "@codemirror/state";
import { type EditorView, GutterMarker, gutter } from "@codemirror/view";

class Origin extends GutterMarker {
  override elementClass = "kl-origin";

  constructor(
    readonly line: number,
    readonly title: string,
  ) {
    super();
  }

  override eq(other: Origin): boolean {
    return other.line === this.line && other.title === this.title;
  }

  override toDOM(): Node {
    const mark = document.createElement("span");
    mark.textContent = String(this.line);
    mark.title = this.title;
    return mark;
  }
}

const setOrigins = StateEffect.define<RangeSet<Origin>>();

const field = StateField.define<RangeSet<Origin>>({
  create: () => RangeSet.empty,
  update(marks, transaction) {
    for (const effect of transaction.effects) if (effect.is(setOrigins)) return effect.value;
    return marks.map(transaction.changes);
  },
});

/** A click on an origin calls `open` with its line. */
export function originGutter(open: (line: number) => void): Extension {
  return [
    field,
    gutter({
      class: "kl-origins",
      markers: (view) => view.state.field(field),
      domEventHandlers: {
        mousedown(view, block) {
          const line = originAt(view.state, view.state.doc.lineAt(block.from).number);
          if (line !== null) open(line);
          return line !== null;
        },
      },
    }),
  ];
}

/** `lines`: number of a line here -> number there; numbers that the document does not have are left out. */
export function showOrigins(view: EditorView, lines: Readonly<Record<number, number>>, where: string): void {
  view.dispatch({ effects: setOrigins.of(originsOf(view.state.doc, lines, where)) });
}

function originsOf(doc: Text, lines: Readonly<Record<number, number>>, where: string): RangeSet<Origin> {
  const builder = new RangeSetBuilder<Origin>();
  for (const here of Object.keys(lines)
    .map(Number)
    .sort((a, b) => a - b)) {
    const there = lines[here];
    if (there === undefined || here < 1 || here > doc.lines) continue;
    const { from } = doc.line(here);
    builder.add(from, from, new Origin(there, `from line ${there} of ${where}`));
  }
  return builder.finish();
}

/** Where a line comes from, null when that is not known. */
export function originAt(state: EditorState, line: number): number | null {
  const { from, to } = state.doc.line(line);
  let found: number | null = null;
  state.field(field).between(from, to, (_from, _to, origin) => {
    found = origin.line;
    return false;
  });
  return found;
}

/** The lines here that come from any of `lines` there. */
export function linesFrom(state: EditorState, lines: readonly number[]): number[] {
  const wanted = new Set(lines);
  const found: number[] = [];
  for (const cursor = state.field(field).iter(); cursor.value; cursor.next()) {
    if (wanted.has(cursor.value.line)) found.push(state.doc.lineAt(cursor.from).number);
  }
  return found;
}
