/** The Sketch panel: the editor, what it costs, what the checker says, and what a person can do with their text. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { writtenByAgent } from "../follow";
import { Streaming } from "../panels/prompt";
import type { Diagnostic } from "../protocol";
import { Button, Tip } from "../ui";
import type { View } from "../view";
import { useCompared } from "./compared";
import { DraftBar, DraftNotice } from "./DraftBar";
import { HEAD } from "./desks";
import { countOf, GLYPHS, severityOf } from "./diagnostics";
import { type Against, type SketchEditor, sketchEditorOf } from "./sketch-editor";
import "./editor.css";

const BUSY = "kernel busy: the check waits for the running cell";

export function SketchPanel({ view }: { view: View }) {
  const editor = useMemo(() => sketchEditorOf(view), [view]);
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => (host.current ? editor.mount(host.current) : undefined), [editor]);
  const partial = view.state.partial.value;
  const asked = writtenByAgent(view, "designer");
  const { sketch_before } = view.state.texts.value;
  useCompared<Against>(editor.against, "parent", asked, sketch_before !== "");
  return (
    <section
      class="kl-ed kl-sketch"
      aria-label="Sketch"
      data-doc-version={editor.checker.version.value}
      data-checked-version={editor.checker.checked.value}
      data-standing={editor.drafts.standing.value}
    >
      <DraftNotice
        drafts={editor.drafts}
        what="sketch"
        onDifference={() => {
          editor.against.value = "session";
        }}
        onApply={() => void editor.apply(true)}
      />
      {partial.turn !== null && partial.role === "designer" && <Streaming partial={partial} />}
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

function Cost({ editor }: { editor: SketchEditor }) {
  const { version, checked, busy, trouble } = editor.checker;
  const answer = editor.checked.value;
  const old = version.value !== checked.value;
  return (
    <section class="kl-ed-bar" aria-label="cost and footprint">
      {answer?.cost.length ? (
        <ul class={`kl-ed-cost${old ? " kl-ed-old" : ""}`}>
          {answer.cost.map((figure) => (
            <li key={figure.title}>
              <Tip text={figure.text} title={figure.title} />
            </li>
          ))}
        </ul>
      ) : (
        answer && <span class="kl-dim">no cost while the sketch has errors or sizes are not known</span>
      )}
      <span class="kl-grow" />
      <span class="kl-dim" role="status">
        {busy.value ? BUSY : trouble.value || (answer && (countOf(editor.findings.value) || "no findings"))}
      </span>
    </section>
  );
}

function Findings({ editor }: { editor: SketchEditor }) {
  const found = editor.findings.value;
  if (!found.length) return null;
  return (
    <ol class="kl-ed-findings" aria-label="findings of the checker">
      {found.map((one) => (
        <Finding key={`${one.line}:${one.col}:${one.code}:${one.message}`} one={one} editor={editor} />
      ))}
    </ol>
  );
}

function Finding({ one, editor }: { one: Diagnostic; editor: SketchEditor }) {
  const severity = severityOf(one);
  return (
    <li class={`kl-ed-${severity}`}>
      <button type="button" onClick={() => editor.focusLine(one.line)}>
        <span class="kl-ed-glyph" aria-hidden="true">
          {GLYPHS[severity]}
        </span>
        <em>
          {severity}, line {one.line}
        </em>
        <span>
          {one.message} <em>{one.remedy}</em>
        </span>
      </button>
      {one.fix && (
        <Button action="quick-fix" onClick={() => editor.fix(one)}>
          Change to {one.fix}
        </Button>
      )}
    </li>
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
