/** The Sketch panel: the editor, what it costs, what the checker says, and what a person can do with their text. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { writtenByAgent } from "../follow";
import { Writing } from "../panels/prompt";
import type { View } from "../view";
import { useCompared } from "./compared";
import { DraftBar, DraftNotice } from "./DraftBar";
import { HEAD } from "./desks";
import { Cost, Findings } from "./findings";
import { type Against, type SketchEditor, sketchEditorOf } from "./sketch-editor";
import "./editor.css";

export function SketchPanel({ view }: { view: View }) {
  const editor = useMemo(() => sketchEditorOf(view), [view]);
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => (host.current ? editor.mount(host.current) : undefined), [editor]);
  const partial = view.state.partial.value;
  const asked = writtenByAgent(view, "designer");
  const { sketch, sketch_before } = view.state.texts.value;
  // the first sketch is written where it will stand
  const first = partial.role === "designer" && sketch === "" && editor.drafts.standing.value === "same";
  useCompared<Against>(editor.against, "parent", asked, sketch_before !== "");
  return (
    <section
      class="kl-ed kl-sketch"
      aria-label="Sketch"
      data-doc-version={editor.checker.version.value}
      data-checked-version={editor.checker.checked.value}
      data-standing={editor.drafts.standing.value}
      data-first={first || undefined}
    >
      <DraftNotice
        drafts={editor.drafts}
        what="sketch"
        onDifference={() => {
          editor.against.value = "session";
        }}
        onApply={() => void editor.apply(true)}
      />
      <Writing view={view} by="designer" />
      <div class="kl-ed-host" ref={host} />
      <Cost editor={editor} />
      <Findings editor={editor} />
      <DraftBar
        drafts={editor.drafts}
        action={editor.drafts.place.value === HEAD ? "Apply and continue" : "Apply as a fork"}
        errors={editor.errors.value}
        onApply={(anyway) => void editor.apply(false, anyway)}
        onRevert={() => editor.revert()}
      >
        <Compare editor={editor} view={view} />
      </DraftBar>
    </section>
  );
}

function Compare({ editor, view }: { editor: SketchEditor; view: View }) {
  const { sketch_before } = view.state.texts.value;
  return (
    <label class="kl-choice">
      Difference
      <select
        value={editor.against.value}
        onChange={(event) => {
          editor.against.value = event.currentTarget.value as Against;
        }}
      >
        <option value="none">not shown</option>
        <option value="parent" disabled={!sketch_before}>
          to the sketch before
        </option>
        <option value="session" disabled={editor.drafts.standing.value === "same"}>
          to the session's sketch
        </option>
      </select>
    </label>
  );
}
