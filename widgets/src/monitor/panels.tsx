/** What is shown of the whole run: two candidates side by side, the grid of kinds, the Analyst's words, the ledger. */
import { useState } from "preact/hooks";
import { count, duration, NONE, percent, plural } from "../format";
import { Difference } from "../panels/difference";
import { Area, Button, Choice, Empty, useAnswer } from "../ui";
import type { Cell, Round } from "./protocol";
import { figureOf } from "./row";
import type { MonitorView } from "./view";

export function ComparePanel({ view }: { view: MonitorView }) {
  const [a, b] = view.marked.value;
  const key = a === undefined || b === undefined ? null : `${a} ${b} ${view.state.head.value.candidates}`;
  const asked = useAnswer(key, (signal) => view.request({ ask: "compare", a: a ?? 0, b: b ?? 0 }, { signal }));
  if (key === null) return <Empty>Mark two candidates: with Space in the table, or with their boxes.</Empty>;
  if (asked?.error) return <p class="kl-bad">{asked.error}</p>;
  const found = asked?.value;
  if (!found) return <Empty>asking the kernel</Empty>;
  return (
    <>
      <p>
        <strong>{found.verdict}</strong>
      </p>
      <div class="kl-mon-two">
        <table class="kl-table">
          <thead>
            <tr>
              <td />
              {[found.a, found.b].map((number) => (
                <th key={number} scope="col">
                  <button type="button" class="kl-link" onClick={() => view.choose(number)}>
                    candidate {number}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {found.rows.map((row) => (
              <tr key={row.name} class={row.a === row.b ? "kl-dim" : undefined}>
                <th scope="row">{row.name}</th>
                <td>{row.a || NONE}</td>
                <td>{row.b || NONE}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <Difference text={found.diff} label="difference of their texts" />
      </div>
    </>
  );
}

type Axis = "technique" | "footprint" | "stages" | "intensity";
const AXES: Axis[] = ["technique", "footprint", "stages", "intensity"];
const NAMES: Record<Axis, string> = {
  technique: "technique",
  footprint: "bytes on chip",
  stages: "stages",
  intensity: "flop/byte",
};
const ENDS: Record<Axis, (cell: Cell) => string> = {
  technique: (cell) => cell.technique || "other",
  footprint: (cell) => `${count(4 ** cell.footprint)}B`,
  stages: (cell) => String(cell.stages),
  intensity: (cell) => String(2 ** cell.intensity),
};

/** The best candidate of each kind, on two of the four axes; the better, the darker. */
export function GridPanel({ view }: { view: MonitorView }) {
  const [across, setAcross] = useState<Axis>("footprint");
  const [down, setDown] = useState<Axis>("technique");
  void view.changes.value;
  const { cells } = view.state.figures.value;
  const { measure } = view.state.head.value;
  if (!cells.length) return <Empty>No candidate has passed yet.</Empty>;
  const worth = (cell: Cell): number => {
    const value = view.rows.get(cell.number)?.value ?? null;
    return value === null || value <= 0 ? 0 : measure === "modelled" ? 1 / value : value;
  };
  const best = new Map<string, Cell>();
  for (const cell of cells) {
    const key = `${cell[down]} ${cell[across]}`;
    const there = best.get(key);
    if (!there || worth(cell) > worth(there)) best.set(key, cell);
  }
  const top = Math.max(...cells.map(worth)) || 1;
  const [columns, lines] = [ends(cells, across), ends(cells, down)];
  return (
    <>
      <div class="kl-row">
        <Axes label="across" value={across} other={down} set={setAcross} />
        <Axes label="down" value={down} other={across} set={setDown} />
        <span class="kl-dim">{plural(cells.length, "kind")} of kernel; each shows its best candidate</span>
      </div>
      <table class="kl-mon-grid">
        <thead>
          <tr>
            <td class="kl-dim">
              {NAMES[down]} \ {NAMES[across]}
            </td>
            {columns.map((cell) => (
              <th key={String(cell[across])} scope="col">
                {ENDS[across](cell)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr key={String(line[down])}>
              <th scope="row">{ENDS[down](line)}</th>
              {columns.map((column) => {
                const cell = best.get(`${line[down]} ${column[across]}`);
                const row = cell && view.rows.get(cell.number);
                if (!cell || !row) return <td key={String(column[across])} />;
                const share = Math.round((40 * worth(cell)) / top);
                return (
                  <td key={String(column[across])}>
                    <button
                      type="button"
                      class={`kl-mon-cell${view.at.value === cell.number ? " kl-current" : ""}`}
                      style={{ "--kl-share": `${share}%` }}
                      onClick={() => view.choose(cell.number)}
                    >
                      {figureOf(row, measure).split(" [")[0]}
                      <span class="kl-unseen">, candidate {cell.number}</span>
                    </button>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

interface AxesProps {
  label: string;
  value: Axis;
  other: Axis;
  set: (axis: Axis) => void;
}

function Axes({ label, value, other, set }: AxesProps) {
  const named = (axis: Axis) => NAMES[axis];
  const options = AXES.filter((axis) => axis !== other);
  return (
    <Choice
      local
      label={label}
      value={named(value)}
      options={options.map(named)}
      onChange={(name) => set(options.find((axis) => named(axis) === name) ?? value)}
    />
  );
}

/** A cell for each end of an axis, in order. */
function ends(cells: readonly Cell[], axis: Axis): Cell[] {
  const found = new Map(cells.map((cell) => [cell[axis], cell]));
  return [...found.values()].sort((a, b) => (a[axis] < b[axis] ? -1 : 1));
}

export function AnalystPanel({ view }: { view: MonitorView }) {
  const { rounds, direction, scratchpad } = view.state.figures.value;
  return (
    <div class="kl-mon-two">
      <div>
        {rounds.length === 0 && <Empty>No round has ended yet.</Empty>}
        <ol class="kl-mon-rounds" aria-label="rounds, the newest first">
          {[...rounds].reverse().map((round) => (
            <Ended key={round.round} view={view} round={round} />
          ))}
        </ol>
      </div>
      <div class="kl-mon-stack">
        <Proposed key={view.state.head.value.suggestion} view={view} />
        <Told view={view} action="direction" label="Direction of the next rounds" text={direction} />
        <Told view={view} action="scratchpad" label="Scratchpad: what was learnt" text={scratchpad} />
      </div>
    </div>
  );
}

function Ended({ view, round }: { view: MonitorView; round: Round }) {
  return (
    <li>
      <div class="kl-row">
        <strong>{round.round === 0 ? "Seeds" : `Round ${round.round}`}</strong>
        <span class="kl-dim">{plural(round.evaluations, "candidate")}</span>
        {round.best !== null && (
          <span>
            best{" "}
            <button type="button" class="kl-link" onClick={() => view.choose(round.best ?? 0)}>
              {round.best}
            </button>
            , {round.text}
          </span>
        )}
      </div>
      {round.plan && <p>{round.plan}</p>}
      {round.prefer.length > 0 && <p class="kl-dim">Next to be tried first: {round.prefer.join(", ")}</p>}
    </li>
  );
}

/** A direction away from what gains nothing any more: taken up as it is, in other words, or not. */
function Proposed({ view }: { view: MonitorView }) {
  const { suggestion } = view.state.head.value;
  const [draft, setDraft] = useState(suggestion);
  if (!suggestion) return null;
  const sending = view.sending.value;
  const accept = () => view.send({ action: "accept", text: draft });
  return (
    <section class="kl-mon-proposed" aria-label="a new direction is proposed">
      <h3>A new direction is proposed</h3>
      <Area label="proposed direction" value={draft} rows={3} onInput={setDraft} onSubmit={accept} />
      <div class="kl-row kl-mon-under">
        <Button primary action="accept" disabled={!draft.trim()} busy={sending.has("accept")} onClick={accept}>
          {draft === suggestion ? "Accept" : "Accept as edited"}
        </Button>
        <Button action="refuse" busy={sending.has("refuse")} onClick={() => view.send({ action: "refuse" })}>
          Refuse
        </Button>
      </div>
    </section>
  );
}

interface ToldProps {
  view: MonitorView;
  action: "direction" | "scratchpad";
  label: string;
  text: string;
}

/** A text for later proposals; what is being typed stays until it is sent or given up. */
function Told({ view, action, label, text }: ToldProps) {
  const [draft, setDraft] = useState<string | null>(null);
  const steer = view.state.head.value.can.steer;
  const send = async () => {
    const outcome = await view.send({ action, text: draft ?? text });
    if (!outcome.error) setDraft(null);
  };
  return (
    <div>
      <h3>{label}</h3>
      <Area label={label} value={draft ?? text} rows={3} onInput={setDraft} onSubmit={send} readOnly={!steer} />
      <div class="kl-row kl-mon-under">
        <Button action={`send-${action}`} disabled={!steer || draft === null || draft === text} onClick={send}>
          Keep
        </Button>
        {draft !== null && draft !== text && (
          <Button quiet action={`revert-${action}`} onClick={() => setDraft(null)}>
            Revert
          </Button>
        )}
      </div>
    </div>
  );
}

export function LedgerPanel({ view }: { view: MonitorView }) {
  const { steps, operators, ledger } = view.state.figures.value;
  const total = steps.reduce((sum, step) => sum + step.seconds, 0) || 1;
  return (
    <div class="kl-mon-two">
      <table class="kl-table kl-mon-ledger">
        <caption>What each step did</caption>
        <thead>
          <tr>
            {["step", "candidates", "refused", "share refused", "took", "share of time"].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {steps.map((step) => (
            <tr key={step.name} class={step.seen ? undefined : "kl-dim"}>
              <th scope="row">{step.name}</th>
              <td>{step.seen}</td>
              <td>{step.refused}</td>
              <td>{step.seen ? percent(step.refused / step.seen) : NONE}</td>
              <td>{duration(step.seconds) || NONE}</td>
              <td>
                <span class="kl-meter" aria-hidden="true">
                  <span style={{ width: percent(step.seconds / total) }} />
                </span>{" "}
                {percent(step.seconds / total)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div>
        <table class="kl-table kl-mon-ledger">
          <caption>What each operator brought</caption>
          <thead>
            <tr>
              {["operator", "tried", "gain (log)", "took", "tokens"].map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {operators.map((one) => (
              <tr key={one.name}>
                <th scope="row">{one.name}</th>
                <td>{one.tries}</td>
                <td>{one.gain.toFixed(2)}</td>
                <td>{duration(one.seconds) || NONE}</td>
                <td>{one.tokens || NONE}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <table class="kl-table kl-mon-ledger">
          <caption>Spent in all</caption>
          <tbody>
            {ledger.map(({ name, text }, index) => (
              <tr key={index}>
                <th scope="row">{name}</th>
                <td>{text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
