/** Every candidate of the session: sorted, paged from the kernel as it is scrolled, two of them side by side. */
import type { ComponentChild } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { save, saveAs } from "../download";
import { NONE, plural } from "../format";
import { StateSign } from "../icons";
import type { BestFigures, CandidateComparison, CandidateRow, TurnRow } from "../protocol";
import { Button, Empty, Fold, useAnswer } from "../ui";
import type { View } from "../view";
import { useSpan } from "../virtual";
import { Difference } from "./difference";
import { toCsv, toPicture } from "./take-comparison";

const ROW = 52;
export const PAGE = 200;
/** candidates that one run times */
const MOST = 8;
type Sort = "number" | "speedup";

/** Sizes of Dims as a person has typed them; the task's own where nothing is typed. */
type TypedSizes = Readonly<Record<string, string>>;

export function CandidatesPanel({ view }: { view: View }) {
  const [sort, setSort] = useState<Sort>("speedup");
  const [marked, setMarked] = useState<readonly string[]>([]);
  const [comparing, setComparing] = useState(false);
  const [typed, setTyped] = useState<TypedSizes>({});
  const { rows, total, error } = usePages(view, sort);
  const mark = (turn: string) =>
    setMarked(marked.includes(turn) ? marked.filter((one) => one !== turn) : [...marked, turn].slice(-MOST));
  const [a, b] = marked;
  const again = <TimeAgain view={view} marked={marked} typed={typed} />;
  if (comparing && a && b) {
    const turns = view.rows.value;
    return (
      <Comparison view={view} a={verifiedBy(turns, a)} b={verifiedBy(turns, b)} close={() => setComparing(false)}>
        {again}
      </Comparison>
    );
  }
  return (
    <div class="kl-candidates">
      <div class="kl-row">
        <span class="kl-dim">{total === null ? (error ?? "asking the kernel") : plural(total, "candidate")}</span>
        <span class="kl-grow" />
        <SortButtons sort={sort} setSort={setSort} />
        <Button
          primary
          action="compare"
          disabled={marked.length !== 2}
          title="Mark two candidates to see them side by side"
          onClick={() => setComparing(true)}
        >
          Compare two
        </Button>
        {again}
      </div>
      {marked.length > 1 && <SizeFields own={view.state.roofline.value.dims} typed={typed} setTyped={setTyped} />}
      {total === 0 && <Empty>No candidate yet. The Coder's first turn makes one.</Empty>}
      {total !== null && total > 0 && <Heads />}
      {total !== null && total > 0 && <List view={view} rows={rows} total={total} marked={marked} mark={mark} />}
    </div>
  );
}

function SortButtons({ sort, setSort }: { sort: Sort; setSort: (sort: Sort) => void }) {
  return (
    <>
      <Button
        pressed={sort === "speedup"}
        action="sort-speedup"
        title="By speedup, which each kernel's own run measured next to the baseline. Times of different runs do not compare: time the kernels again, paired"
        onClick={() => setSort("speedup")}
      >
        fastest first
      </Button>
      <Button pressed={sort === "number"} action="sort-number" onClick={() => setSort("number")}>
        in order
      </Button>
    </>
  );
}

/** Times the marked kernels in one run; with fewer than two marked, the best and those that are tied with it. */
function TimeAgain({ view, marked, typed }: { view: View; marked: readonly string[]; typed: TypedSizes }) {
  const head = view.state.head.value;
  const tied = marked.length < 2 ? contenders(view.rows.value, head.best) : [];
  const timed = tied.length ? tied : marked;
  const whole = Object.entries(typed).filter(([, text]) => text !== "" && Number.isInteger(Number(text)));
  const sizes = {
    ...view.state.roofline.value.dims,
    ...Object.fromEntries(whole.map(([dim, text]) => [dim, Number(text)])),
  };
  let title = `Mark two to ${MOST} verified candidates: one run times them next to each other`;
  if (tied.length) {
    title = "One run times the best and those that are tied with it next to each other; mark others to time those";
  }
  if (head.comparing) title = `Kernels are being timed already${head.doing ? `: ${head.doing}` : ""}`;
  return (
    <Button
      action="time-again"
      disabled={timed.length < 2 || head.comparing}
      busy={view.sending.value.has("time_again")}
      title={title}
      onClick={() => void view.send({ action: "time_again", turns: [...timed], sizes })}
    >
      {tied.length ? "Time the tied again, paired" : "Time again, paired"}
    </Button>
  );
}

interface SizeFieldsProps {
  /** the task's own size of each Dim */
  own: Readonly<Record<string, number>>;
  typed: TypedSizes;
  setTyped: (typed: TypedSizes) => void;
}

function SizeFields({ own, typed, setTyped }: SizeFieldsProps) {
  if (Object.keys(own).length === 0) return null;
  return (
    <fieldset class="kl-row kl-sizes">
      <legend class="kl-unseen">sizes at which they are timed again</legend>
      <span class="kl-dim">timed again at</span>
      {Object.entries(own).map(([dim, size]) => (
        <label key={dim}>
          {dim}{" "}
          <input
            type="number"
            class="kl-input"
            min={0}
            value={typed[dim] ?? size}
            onInput={({ currentTarget }) => setTyped({ ...typed, [dim]: currentTarget.value })}
          />
        </label>
      ))}
    </fieldset>
  );
}

/** The turns of the best and of those that are tied with it; none where it is alone. */
function contenders(rows: readonly TurnRow[], best: BestFigures | null): string[] {
  if (!best?.tied.length) return [];
  const ids = new Map(rows.map((row) => [row.number, row.id]));
  return [best.number, ...best.tied].slice(0, MOST).flatMap((number) => ids.get(number) ?? []);
}

function Heads() {
  return (
    <div class="kl-candidate-heads kl-dim" aria-hidden="true">
      <span />
      <span>turn</span>
      <span />
      <span class="kl-candidate-time">time</span>
      <span class="kl-candidate-speedup">speedup</span>
      <span class="kl-wide">trust</span>
      <span class="kl-wide">by</span>
      <span />
    </div>
  );
}

type Pages = ReadonlyMap<number, readonly CandidateRow[]>;

interface Rows {
  at: (index: number) => CandidateRow | undefined;
  want: (first: number, end: number) => void;
}

/** Pages that were asked for so far. A new turn that ends makes them out of date: those in sight are asked again. */
function usePages(view: View, sort: Sort) {
  const [pages, setPages] = useState<Pages>(new Map());
  const [total, setTotal] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  const asked = useRef(new Set<number>());
  // a measurement in one run changes the figures, too
  const ended = `${view.rows.value.filter((row) => row.state !== "running").length} ${view.state.head.value.comparing}`;
  const version = useRef(0);
  const load = (page: number) => {
    if (asked.current.has(page)) return;
    asked.current.add(page);
    const mine = version.current;
    view.request({ ask: "candidates", offset: page * PAGE, limit: PAGE, sort }).then(
      (answer) => {
        if (mine !== version.current) return;
        setError(null);
        setTotal(answer.total);
        setPages((before) => new Map(before).set(page, answer.rows));
      },
      (problem: Error) => {
        if (mine !== version.current) return;
        asked.current.delete(page);
        setError(problem.message);
      },
    );
  };
  useEffect(() => {
    version.current += 1;
    const again = asked.current.size ? [...asked.current] : [0];
    asked.current = new Set();
    for (const page of again.slice(-3)) load(page);
  }, [sort, ended]);
  const rows: Rows = {
    at: (index) => pages.get(Math.floor(index / PAGE))?.[index % PAGE],
    want: (first, end) => {
      for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, end - 1) / PAGE); page += 1)
        load(page);
    },
  };
  return { rows, total, error };
}

interface ListProps {
  view: View;
  rows: Rows;
  total: number;
  marked: readonly string[];
  mark: (turn: string) => void;
}

function List({ view, rows, total, marked, mark }: ListProps) {
  const box = useRef<HTMLDivElement>(null);
  const [cursor, setCursor] = useState(0);
  const { first, end, slots, show } = useSpan(box, total, ROW);
  useEffect(() => rows.want(first, end), [first, end]);
  const at = view.at.value;
  const keys = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 300) / ROW) - 2);
    const steps: Record<string, number> = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -total,
      End: total,
    };
    const step = steps[event.key];
    const row = rows.at(cursor);
    if (step !== undefined) {
      const next = Math.min(total - 1, Math.max(0, cursor + step));
      setCursor(next);
      show(next);
    } else if (event.key === "Enter" && row) view.look(row.turn);
    else if (event.key === " " && row) mark(row.turn);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown: number[] = [];
  for (let index = first; index < end; index += 1) shown.push(index);
  const id = (index: number) => `kl-candidate-${view.key}-${index}`;
  return (
    <div
      ref={box}
      class="kl-candidate-list"
      role="listbox"
      aria-label="candidates; Enter looks at one, Space marks it for comparison"
      aria-multiselectable="true"
      aria-activedescendant={cursor >= first && cursor < end ? id(cursor) : undefined}
      tabIndex={0}
      onKeyDown={keys}
    >
      <div style={{ height: `${total * ROW}px`, position: "relative" }}>
        {shown.map((index) => {
          const row = rows.at(index);
          return (
            <div
              key={index % slots}
              id={id(index)}
              role="option"
              tabIndex={-1}
              aria-selected={row !== undefined && marked.includes(row.turn)}
              aria-posinset={index + 1}
              aria-setsize={total}
              class={`kl-candidate${index === cursor ? " kl-cursor" : ""}${row?.turn === at ? " kl-current" : ""}`}
              style={{ transform: `translateY(${index * ROW}px)` }}
              onMouseDown={(event) => {
                event.preventDefault();
                box.current?.focus();
                setCursor(index);
                if (row) view.look(row.turn);
              }}
            >
              {row ? (
                <Candidate row={row} marked={marked.includes(row.turn)} mark={mark} />
              ) : (
                <span class="kl-dim">…</span>
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

const stateOf = (row: CandidateRow): string => (row.passed === null ? "not reached" : row.passed ? "passed" : "failed");

function Candidate({ row, marked, mark }: { row: CandidateRow; marked: boolean; mark: (turn: string) => void }) {
  return (
    <>
      {/* the option says itself whether it is marked, and Space marks it */}
      <span
        class="kl-check"
        aria-hidden="true"
        data-mark={row.number}
        onMouseDown={(event) => {
          event.preventDefault();
          event.stopPropagation();
        }}
        onClick={() => mark(row.turn)}
      >
        {marked ? "\u2611" : "\u2610"}
      </span>
      <span class="kl-number">{row.number}</span>
      <StateSign state={stateOf(row)} />
      <span class="kl-candidate-time" data-tip={row.time?.title}>
        {row.time?.text ?? NONE}
      </span>
      <span class="kl-candidate-speedup" data-tip={row.speedup?.title}>
        {row.speedup?.text ?? NONE}
      </span>
      <span class="kl-dim">{row.trust}</span>
      <span class="kl-dim">{row.author}</span>
      <span>
        {row.best && <strong class="kl-good">best</strong>}
        {row.tied && <span class="kl-dim">tied</span>}
      </span>
      <span class="kl-candidate-note" data-tip={row.note || undefined}>
        {row.note}
      </span>
    </>
  );
}

/** The verification that followed a candidate, which has its figures; the candidate itself while there is none. */
export const verifiedBy = (rows: readonly TurnRow[], candidate: string): string =>
  rows.find(
    (row) => row.parent === candidate && (row.state === "passed" || row.state === "failed") && row.role === "verifier",
  )?.id ?? candidate;

interface ComparisonProps {
  view: View;
  a: string;
  b: string;
  close: () => void;
  /** times the two again */
  children: ComponentChild;
}

function Comparison({ view, a, b, close, children }: ComparisonProps) {
  // a run that times both changes the answer
  const asked = useAnswer(`${a} ${b} ${view.state.head.value.comparing}`, (signal) =>
    view.request({ ask: "compare", a, b }, { signal }),
  );
  return (
    <div class="kl-comparison">
      <div class="kl-row">
        <Button local action="back" onClick={close}>
          Back to the list
        </Button>
        {children}
      </div>
      {!asked && <Empty>asking the kernel</Empty>}
      {asked?.error && <p class="kl-bad">{asked.error}</p>}
      {asked?.value && <SideBySide view={view} compared={asked.value} />}
    </div>
  );
}

function SideBySide({ view, compared }: { view: View; compared: CandidateComparison }) {
  const { a, b, verdict, rows, diff } = compared;
  const turns = new Map(view.rows.value.map((row) => [row.id, row]));
  // a kernel is named by the turn that wrote it, not by the one that verified it
  const numberOf = (turn: string) => {
    const row = turns.get(turn);
    return (row?.role === "verifier" ? turns.get(row.parent ?? "")?.number : row?.number) ?? turn;
  };
  const taken = {
    name: view.state.head.value.name,
    a: `turn ${numberOf(a)}`,
    b: `turn ${numberOf(b)}`,
    found: compared,
  };
  const file = `${taken.name}-${numberOf(a)}-${numberOf(b)}`;
  const tools = useRef<HTMLDivElement>(null);
  const picture = async () => {
    const drawn = tools.current && (await toPicture(taken, tools.current));
    if (drawn) saveAs(`${file}.png`, drawn);
    else view.say("This browser draws no picture. Take the figures as CSV.", "error");
  };
  return (
    <>
      <p>
        <strong>{verdict}</strong>
      </p>
      <div class="kl-row" ref={tools}>
        <Button local action="compare-csv" onClick={() => save({ name: `${file}.csv`, text: toCsv(taken) })}>
          Figures as CSV
        </Button>
        <Button local action="compare-png" onClick={() => void picture()}>
          As a picture
        </Button>
      </div>
      <table class="kl-table kl-side-by-side">
        <thead>
          <tr>
            <td />
            {[a, b].map((turn) => (
              <th key={turn} scope="col">
                <button type="button" class="kl-link" onClick={() => view.look(turn)}>
                  turn {numberOf(turn)}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name} class={row.a === row.b ? "kl-dim" : undefined}>
              <th scope="row">{row.name}</th>
              <td>{row.a || NONE}</td>
              <td>{row.b || NONE}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Fold title="What differs" open={diff !== ""} aside={diff === "" ? "nothing: the texts are the same" : undefined}>
        <Difference text={diff} label="what differs" />
      </Fold>
    </>
  );
}
