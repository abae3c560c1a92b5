/** Under a sketch's editor, wherever it stands: what the sketch costs, and what the checker says. */

import type { ReadonlySignal, Signal } from "@preact/signals";
import type { Checked, Diagnostic } from "../protocol";
import { Button, Tip } from "../ui";
import type { Checker } from "./checking";
import { countOf, GLYPHS, severityOf } from "./diagnostics";

const BUSY = "kernel busy: the check waits until it is done";

/** An editor whose text is checked. */
export interface CheckedText {
  readonly checker: Checker;
  /** the checker's last answer */
  readonly checked: Signal<Checked | null>;
  readonly findings: ReadonlySignal<Diagnostic[]>;
  focusLine(line: number): void;
  /** puts what the checker proposes in place of what a finding marks */
  fix(one: Diagnostic): void;
}

export function Cost({ editor }: { editor: CheckedText }) {
  const { version, checked, busy, trouble } = editor.checker;
  const answer = editor.checked.value;
  const wrong = editor.findings.value.some((one) => severityOf(one) === "error");
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
        answer && (
          <span class="kl-dim">
            {wrong ? "no cost while the sketch has errors" : "no cost: the task's sizes are not known here"}
          </span>
        )
      )}
      <span class="kl-grow" />
      <span class="kl-dim" role="status">
        {busy.value ? BUSY : trouble.value || (answer && (countOf(editor.findings.value) || "no findings"))}
      </span>
    </section>
  );
}

export function Findings({ editor }: { editor: CheckedText }) {
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

function Finding({ one, editor }: { one: Diagnostic; editor: CheckedText }) {
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
        <Button local action="quick-fix" onClick={() => editor.fix(one)}>
          Change to {one.fix}
        </Button>
      )}
    </li>
  );
}
