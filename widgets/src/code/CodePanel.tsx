/** The Code panel: the files of a candidate, how they differ from the one before, and where each line comes from. */

import { useEffect, useId, useMemo, useRef } from "preact/hooks";
import { useCompared } from "../editor/compared";
import { DraftBar, DraftNotice } from "../editor/DraftBar";
import { HEAD } from "../editor/desks";
import { GLYPHS, severityOf } from "../editor/diagnostics";
import { writtenByAgent } from "../follow";
import { Writing } from "../panels/prompt";
import { Copy, Empty } from "../ui";
import type { View } from "../view";
import { type Against, type CodeEditor, codeEditorOf } from "./code-editor";
import type { Tab } from "./files";
import "../editor/editor.css";
import "./code.css";

export function CodePanel({ view }: { view: View }) {
  const editor = useMemo(() => codeEditorOf(view), [view]);
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => (host.current ? editor.mount(host.current) : undefined), [editor]);
  const { sketch, begun_from: begun } = view.state.texts.value;
  const first = view.state.partial.value.role === "coder" && !editor.tab.value;
  const id = useId();
  const asked = writtenByAgent(view, "coder");
  const changed = Object.keys(view.state.texts.value.files_before).length > 0;
  useCompared<Against>(editor.against, "before", asked, changed);
  return (
    <section
      class="kl-ed kl-code"
      aria-label="Code"
      data-standing={editor.drafts.standing.value}
      data-first={first || undefined}
    >
      {editor.tab.value && <Tabs editor={editor} view={view} controls={id} />}
      {!editor.tab.value && !first && <Empty>There is no code yet.</Empty>}
      <DraftNotice
        drafts={editor.drafts}
        what="code"
        onDifference={() => {
          editor.against.value = "session";
        }}
        onApply={() => void editor.apply(true)}
      />
      {begun && (
        <p class="kl-dim kl-code-line">
          The code of turn {begun}, which is of an older sketch. Write it for the sketch that is shown.
        </p>
      )}
      <Waiting editor={editor} />
      <Facts editor={editor} />
      <TimeGoes editor={editor} />
      <Writing view={view} by="coder" />
      <div class="kl-code-pair" id={id} hidden={!editor.tab.value}>
        {editor.beside.value && (sketch !== "" || editor.source.value) && <Beside editor={editor} />}
        <div class="kl-ed-host" ref={host} />
      </div>
      <Findings editor={editor} />
      {editor.tab.value && (
        <DraftBar
          drafts={editor.drafts}
          action={editor.drafts.place.value === HEAD ? "Verify my edit" : "Verify as a fork"}
          onApply={() => void editor.apply()}
          onRevert={() => editor.revert()}
        >
          <Compare editor={editor} view={view} />
          {(sketch !== "" || editor.source.value) && (
            <label class="kl-choice kl-code-choose">
              <input
                type="checkbox"
                checked={editor.beside.value}
                onChange={(event) => {
                  editor.beside.value = event.currentTarget.checked;
                }}
              />
              {editor.source.value ? "Source beside" : "Sketch beside"}
            </label>
          )}
        </DraftBar>
      )}
    </section>
  );
}

function Tabs({ editor, view, controls }: { editor: CodeEditor; view: View; controls: string }) {
  const tabs = editor.tabs.value;
  const open = editor.tab.value;
  const step = (event: KeyboardEvent) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -tabs.length, End: tabs.length }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const at = tabs.findIndex((tab) => tab.key === open?.key);
    const next = tabs[Math.min(Math.max(0, at + move), tabs.length - 1)];
    if (!next) return;
    editor.open(next.key);
    const list = event.currentTarget as HTMLElement;
    list.querySelectorAll<HTMLElement>("[role=tab]")[tabs.indexOf(next)]?.focus();
  };
  return (
    <div class="kl-ed-bar kl-code-tabs">
      <div role="tablist" aria-label="files" onKeyDown={step}>
        {tabs.map((tab) => (
          <button
            type="button"
            key={tab.key}
            role="tab"
            class={tab.kind === "artefact" ? "kl-code-artefact" : ""}
            aria-selected={tab.key === open?.key}
            aria-controls={controls}
            tabIndex={tab.key === open?.key ? 0 : -1}
            data-tip={titleOf(tab)}
            onClick={() => editor.open(tab.key)}
          >
            {tab.name}
            {tab.changed && <span aria-hidden="true"> ±</span>}
          </button>
        ))}
      </div>
      <span class="kl-grow" />
      <Copy text={editor.text} view={view} />
    </div>
  );
}

function titleOf(tab: Tab): string {
  if (tab.kind === "artefact") return `${tab.name}: what the compiler made of the code`;
  return tab.changed ? `${tab.name}: differs from the candidate before` : tab.name;
}

function Waiting({ editor }: { editor: CodeEditor }) {
  const got = editor.fetched.value;
  if (got === "fetching")
    return (
      <p class="kl-dim kl-code-line" role="status">
        Fetching {editor.tab.value?.name}.
      </p>
    );
  if (got && typeof got === "object" && "error" in got) {
    return (
      <p class="kl-ed-notice kl-ed-refused" role="alert">
        {got.error}
      </p>
    );
  }
  return null;
}

/** What the compiler's texts tell: registers, spills, vector width, each with its sentence. */
function Facts({ editor }: { editor: CodeEditor }) {
  const got = editor.fetched.value;
  const facts = got && typeof got === "object" && "facts" in got ? got.facts : [];
  if (!facts.length) return null;
  return (
    <details class="kl-code-facts">
      <summary>
        {facts.slice(0, 6).map((fact) => (
          <span key={fact.name} data-tip={fact.title}>
            {fact.name} <b>{fact.text}</b>
          </span>
        ))}
      </summary>
      <dl>
        {facts.map((fact) => (
          <div key={fact.name}>
            <dt>
              {fact.name} <b>{fact.text}</b>
            </dt>
            <dd>{fact.title}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

/** Where the time goes, in sentences: by the lines that the Verifier's samples were at, or by a GPU's counters. */
function TimeGoes({ editor }: { editor: CodeEditor }) {
  const told = editor.tab.value?.kind === "file" ? (editor.heat.value?.told ?? []) : [];
  const [first, ...others] = told;
  if (!first) return null;
  return (
    <details class="kl-code-facts">
      <summary>
        <span>{first}</span>
      </summary>
      {others.map((line) => (
        <p key={line}>{line}</p>
      ))}
    </details>
  );
}

function Beside({ editor }: { editor: CodeEditor }) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => (host.current ? editor.mountSketch(host.current) : undefined), [editor]);
  return <div class="kl-ed-host kl-code-beside" ref={host} />;
}

function Findings({ editor }: { editor: CodeEditor }) {
  const placed = editor.findings.value;
  const remarks = editor.remarks.value;
  if (!placed.length && !remarks.length) return null;
  return (
    <ol class="kl-ed-findings" aria-label="what the compiler said">
      {placed.map((one) => (
        <li key={`${one.line}:${one.message}`} class={`kl-ed-${severityOf(one)}`}>
          <button type="button" onClick={() => editor.focusLine(one.line)}>
            <span class="kl-ed-glyph" aria-hidden="true">
              {GLYPHS[severityOf(one)]}
            </span>
            <em>
              {severityOf(one)}, line {one.line}
            </em>
            <span>{one.message}</span>
          </button>
        </li>
      ))}
      {remarks.map((one) => (
        <li key={one.message} class={`kl-ed-${severityOf(one)} kl-code-line`}>
          <span class="kl-ed-glyph" aria-hidden="true">
            {GLYPHS[severityOf(one)]}
          </span>{" "}
          {one.message}
        </li>
      ))}
    </ol>
  );
}

function Compare({ editor, view }: { editor: CodeEditor; view: View }) {
  const changed = Object.keys(view.state.texts.value.files_before).length > 0;
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
        <option value="before" disabled={!changed}>
          to the candidate before
        </option>
        <option value="session" disabled={editor.drafts.standing.value === "same"}>
          to the session's code
        </option>
      </select>
    </label>
  );
}
