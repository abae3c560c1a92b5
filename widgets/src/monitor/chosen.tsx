/** The candidate that is looked at: what it is, where it comes from, what may be done with it. */
import type { ComponentChild } from "preact";
import { useMemo, useState } from "preact/hooks";
import { duration } from "../format";
import { StateSign } from "../icons";
import { Difference } from "../panels/difference";
import { Button, Empty, Fold, useAnswer } from "../ui";
import { colourOf } from "./picture";
import type { Candidate, Row } from "./protocol";
import { fate, figureOf, signOf } from "./row";
import { useSettled } from "./settled";
import { alsoParentOf, lineage, offspring } from "./table";
import { LongText } from "./text";
import type { MonitorView } from "./view";

export function Chosen({ view }: { view: MonitorView }) {
  const at = useSettled(view.at.value);
  // a row that changes is another object, in the same map
  void view.changes.value;
  const row = at === null ? undefined : view.rows.get(at);
  const { status, measure } = view.state.head.value;
  const key = row ? `${row.number} ${row.state} ${row.protected} ${status}` : null;
  const asked = useAnswer(key, (signal) => view.request({ ask: "candidate", number: row?.number ?? 0 }, { signal }));
  if (!row) {
    return (
      <section class="kl-mon-chosen" aria-label="chosen candidate">
        <Empty>Click on a point, or choose a row below. The best one is shown here once one is verified.</Empty>
      </section>
    );
  }
  const answer = asked?.value;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and must do so by keyboard too
    <section class="kl-mon-chosen" aria-label={`candidate ${row.number}`} tabIndex={0}>
      <div class="kl-row">
        <StateSign state={signOf(row)} />
        <strong>Candidate {row.number}</strong>
        <span class="kl-figure" data-tip={row.text || undefined}>
          {figureOf(row, measure)}
        </span>
        <span class="kl-dim">{fate(row)}</span>
        {row.protected && <span class="kl-label">kept</span>}
        {view.state.head.value.best === row.number && <span class="kl-label kl-good">best</span>}
      </div>
      <p>
        {row.operator}, by {row.author}, round {row.round}, island {row.island}
        {row.reason && <span class="kl-dim">. {row.reason}</span>}
      </p>
      <Does view={view} row={row} can={answer?.can} />
      <Lineage view={view} row={row} />
      <Also view={view} row={row} />
      {asked?.error && <p class="kl-bad">{asked.error}</p>}
      {answer && <Facts view={view} answer={answer} />}
    </section>
  );
}

function Does({ view, row, can }: { view: MonitorView; row: Row; can: Candidate["can"] | undefined }) {
  const sending = view.sending.value;
  const marked = view.marked.value.includes(row.number);
  return (
    <div class="kl-row">
      <Button
        action="protect"
        disabled={!can?.protect}
        busy={sending.has("protect")}
        title="Keep it among its island's elites"
        onClick={() => view.send({ action: "protect", number: row.number })}
      >
        Protect
      </Button>
      <Button
        action="drop"
        disabled={!can?.drop}
        busy={sending.has("drop")}
        title="Exclude it: it has no children and is not the best"
        onClick={() => view.send({ action: "drop", number: row.number })}
      >
        Drop
      </Button>
      <Button
        action="open"
        disabled={!can?.open}
        busy={sending.has("open")}
        title="A design session that begins with it, in a workbench below"
        onClick={() => view.send({ action: "open", number: row.number })}
      >
        Open in the workbench
      </Button>
      <Button local action="mark" pressed={marked} title="Mark it for comparison" onClick={() => view.mark(row.number)}>
        Mark
      </Button>
    </div>
  );
}

/** The tree that this one stands in: the line from its seed is open, other branches are folded under their parents. */
function Lineage({ view, row }: { view: MonitorView; row: Row }) {
  const children = useMemo(() => offspring(view.rows), [view.changes.value]);
  const line = lineage(view.rows, row.number);
  const [seed] = line;
  if (!seed || (line.length < 2 && !children.has(row.number))) return null;
  const path = new Set(line.map((one) => one.number));
  return (
    <ul class="kl-mon-lineage" aria-label="lineage, from the seed">
      <Branch view={view} row={seed} at={row.number} path={path} children_of={children} />
    </ul>
  );
}

/** Children that stand elsewhere in the tree. */
function Also({ view, row }: { view: MonitorView; row: Row }) {
  const numbers = useMemo(() => alsoParentOf(view.rows, row.number), [view.changes.value, row.number]);
  if (!numbers.length) return null;
  return (
    <p class="kl-dim">
      Also parent of: <Numbers view={view} numbers={numbers} />
    </p>
  );
}

interface BranchProps {
  view: MonitorView;
  row: Row;
  at: number;
  path: ReadonlySet<number>;
  children_of: ReadonlyMap<number, Row[]>;
}

/** A candidate, what it changed of its parent, and its children. */
function Branch({ view, row, at, path, children_of }: BranchProps) {
  const [differs, setDiffers] = useState(false);
  const children = children_of.get(row.number) ?? [];
  const others = children.filter((one) => !path.has(one.number));
  const [parent, ...more] = row.parents;
  const draw = (one: Row) => (
    <Branch key={one.number} view={view} row={one} at={at} path={path} children_of={children_of} />
  );
  return (
    <li style={{ "--kl-island": colourOf(row.island) }}>
      <div class="kl-mon-born">
        <button
          type="button"
          class="kl-link"
          aria-current={row.number === at ? "true" : undefined}
          onClick={() => view.choose(row.number)}
        >
          {row.number}
        </button>
        <span>{figureOf(row, view.state.head.value.measure)}</span>
        <span class="kl-dim kl-mon-cut" data-tip={row.reason || undefined}>
          {row.operator}
          {more.length > 0 ? `, with ${more.join(", ")}` : ""}
        </span>
        {parent !== undefined && (
          <Button local quiet action="edge" pressed={differs} onClick={() => setDiffers(!differs)}>
            difference
          </Button>
        )}
      </div>
      {differs && parent !== undefined && <Edge view={view} parent={parent} child={row.number} />}
      {children.length > others.length && <ul>{children.filter((one) => path.has(one.number)).map(draw)}</ul>}
      {others.length > 0 && (
        <Unfold title={`${children.length > others.length ? "other " : ""}children: ${others.length}`}>
          {() => <ul>{others.map(draw)}</ul>}
        </Unfold>
      )}
    </li>
  );
}

/** Drawn when it is first opened: a branch may have thousands below it. */
function Unfold({ title, children }: { title: string; children: () => ComponentChild }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {open && children()}
    </details>
  );
}

function Edge({ view, parent, child }: { view: MonitorView; parent: number; child: number }) {
  const asked = useAnswer(`${parent} ${child}`, (signal) =>
    view.request({ ask: "compare", a: parent, b: child }, { signal }),
  );
  if (asked?.error) return <p class="kl-bad">{asked.error}</p>;
  if (!asked?.value) return <Empty>asking the kernel</Empty>;
  return <Difference text={asked.value.diff} label={`what ${child} changed of ${parent}`} />;
}

function Facts({ view, answer }: { view: MonitorView; answer: Candidate }) {
  const { inspirations, steps, facts, sketch, files } = answer;
  return (
    <>
      {inspirations.length > 0 && (
        <p class="kl-dim">
          Looked at: <Numbers view={view} numbers={inspirations} />
        </p>
      )}
      {sketch && (
        <Fold title="Sketch" open>
          <LongText label={`sketch of candidate ${answer.number}`}>{sketch}</LongText>
        </Fold>
      )}
      {Object.entries(files).map(([name, text]) => (
        <Fold key={name} title={name}>
          <LongText label={name}>{text}</LongText>
        </Fold>
      ))}
      <Fold title="Figures" aside={steps.map((step) => `${step.name} ${duration(step.seconds) || "0 s"}`).join(", ")}>
        <table class="kl-table">
          <tbody>
            {facts.map(({ name, text }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Fold>
    </>
  );
}

const SEEN = 12;

function Numbers({ view, numbers }: { view: MonitorView; numbers: number[] }) {
  return (
    <>
      {numbers.slice(0, SEEN).map((number, index) => (
        <span key={number}>
          {index > 0 && ", "}
          <button type="button" class="kl-link" onClick={() => view.choose(number)}>
            {number}
          </button>
        </span>
      ))}
      {numbers.length > SEEN && ` and ${numbers.length - SEEN} more`}
    </>
  );
}
