/** Every candidate: sorted, filtered, two marked for comparison; only the rows in sight exist. */
import { Component, type ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { duration, NONE, plural } from "../format";
import { StateSign } from "../icons";
import { Button, Choice } from "../ui";
import { useSpan } from "../virtual";
import { colourOf } from "./picture";
import type { Row } from "./protocol";
import { fate, figureOf, signOf } from "./row";
import { arranged, type Column, type Order, type Which } from "./table";
import type { MonitorView } from "./view";

const HEIGHT = 26;
const COLUMNS: { column: Column | null; name: string; title?: string }[] = [
  { column: null, name: "mark", title: "Mark two to compare them" },
  { column: "number", name: "number" },
  { column: "value", name: "figures", title: "With the interval of 95 %" },
  { column: "state", name: "state", title: "The step that it failed, or how far it came" },
  { column: "operator", name: "operator" },
  { column: null, name: "parents" },
  { column: "round", name: "round" },
  { column: "island", name: "island" },
  { column: "seconds", name: "took" },
  { column: null, name: "why" },
];
const FILTERS: Which[] = ["all", "good", "verified", "failed", "mine"];

export function CandidatesPanel({ view }: { view: MonitorView }) {
  const [order, setOrder] = useState<Order>({ column: "value", down: true });
  const [which, setWhich] = useState<Which>("all");
  const { measure } = view.state.head.value;
  const changes = view.changes.value;
  const rows = useMemo(() => arranged(view.rows.values(), order, which, measure), [changes, order, which, measure]);
  const marked = view.marked.value;
  return (
    <div class="kl-candidates">
      <div class="kl-row">
        <span class="kl-dim">
          {rows.length === view.rows.size
            ? plural(rows.length, "candidate")
            : `${rows.length} of ${plural(view.rows.size, "candidate")}`}
        </span>
        <Choice
          local
          label="which candidates"
          hideLabel
          value={which}
          options={FILTERS}
          onChange={(to) => setWhich(to as Which)}
        />
        <span class="kl-grow" />
        <Button
          local
          action="compare"
          disabled={marked.length !== 2}
          title="Mark two candidates, with Space or the boxes, to see them side by side"
          onClick={() => {
            view.panel.value = "compare";
          }}
        >
          Compare {marked.length} of 2
        </Button>
      </div>
      {rows.length === 0 ? (
        <p class="kl-empty">No candidate here yet.</p>
      ) : (
        <Table view={view} rows={rows} order={order} setOrder={setOrder} />
      )}
    </div>
  );
}

interface TableProps {
  view: MonitorView;
  rows: Row[];
  order: Order;
  setOrder: (order: Order) => void;
}

function Table({ view, rows, order, setOrder }: TableProps) {
  const box = useRef<HTMLDivElement>(null);
  const at = view.at.value;
  const marked = view.marked.value;
  const { measure } = view.state.head.value;
  const { first, end, slots, show } = useSpan(box, rows.length, HEIGHT, HEIGHT);
  const place = useMemo(() => rows.findIndex((row) => row.number === at), [rows, at]);
  // who is chosen elsewhere, in the chart or the lineage, is brought into sight
  useEffect(() => {
    if (view.chosen.value !== null && place >= 0) show(place);
  }, [view.chosen.value]);
  const keys = (event: KeyboardEvent) => {
    // the names' buttons take their own keys
    if (event.target !== box.current) return;
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 300) / HEIGHT) - 2);
    const steps: Record<string, number> = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -rows.length,
      End: rows.length,
    };
    const step = steps[event.key];
    if (step !== undefined) {
      const row = rows[Math.min(rows.length - 1, Math.max(0, Math.max(0, place) + step))];
      if (row) view.choose(row.number);
    } else if (event.key === " " && at !== null) view.mark(at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  // rows are not drawn again because these functions are new ones
  const stable = useRef({
    choose: (number: number) => view.choose(number),
    mark: (number: number) => view.mark(number),
  });
  const id = (row: Row) => `kl-row-${view.key}-${row.number}`;
  const current = rows[place];
  return (
    <div
      ref={box}
      class="kl-mon-table"
      role="grid"
      aria-label="candidates; arrows choose one, Space marks it for comparison"
      aria-rowcount={rows.length + 1}
      aria-activedescendant={current && place >= first && place < end ? id(current) : undefined}
      tabIndex={0}
      onKeyDown={keys}
    >
      <div role="rowgroup" class="kl-mon-names-box">
        <div role="row" tabIndex={-1} class="kl-mon-row kl-mon-names" aria-rowindex={1}>
          {COLUMNS.map(({ column, name, title }) => (
            <span
              key={name}
              role="columnheader"
              tabIndex={-1}
              class={`kl-mon-${name}`}
              aria-sort={column === order.column ? (order.down ? "descending" : "ascending") : undefined}
            >
              {column === null ? (
                <span class={name === "mark" ? "kl-unseen" : undefined}>{name}</span>
              ) : (
                <button
                  type="button"
                  class="kl-mon-sort"
                  data-tip={title}
                  data-action={`sort-${column}`}
                  onClick={() => setOrder({ column, down: column === order.column ? !order.down : column === "value" })}
                >
                  {name}
                  <span aria-hidden="true">{column === order.column ? (order.down ? " \u2193" : " \u2191") : ""}</span>
                </button>
              )}
            </span>
          ))}
        </div>
      </div>
      <div role="rowgroup" style={{ height: `${rows.length * HEIGHT}px`, position: "relative" }}>
        {rows.slice(first, end).map((row, offset) => {
          const index = first + offset;
          return (
            <Line
              // a row that comes into sight takes over the elements of one that has left it
              key={index % slots}
              id={id(row)}
              row={row}
              index={index}
              measure={measure}
              current={row.number === at}
              marked={marked.includes(row.number)}
              {...stable.current}
            />
          );
        })}
      </div>
    </div>
  );
}

interface LineProps {
  id: string;
  row: Row;
  index: number;
  measure: "speedup" | "modelled";
  current: boolean;
  marked: boolean;
  choose: (number: number) => void;
  mark: (number: number) => void;
}

/** Drawn again only when something in it changed: scrolling through thousands of rows must cost little. */
class Line extends Component<LineProps> {
  override shouldComponentUpdate(next: LineProps): boolean {
    const now = this.props as LineProps;
    return (Object.keys(next) as (keyof LineProps)[]).some((key) => next[key] !== now[key]);
  }

  override render({ id, row, index, measure, current, marked, choose, mark }: LineProps) {
    return (
      <div
        id={id}
        role="row"
        tabIndex={-1}
        aria-rowindex={index + 2}
        aria-selected={current}
        class={current ? "kl-mon-row kl-current" : "kl-mon-row"}
        style={{ transform: `translateY(${index * HEIGHT}px)` }}
        data-number={row.number}
        onMouseDown={(event) => {
          event.preventDefault();
          (event.currentTarget.closest(".kl-mon-table") as HTMLElement | null)?.focus({ preventScroll: true });
          choose(row.number);
        }}
      >
        {cell(
          "mark",
          <input
            type="checkbox"
            tabIndex={-1}
            checked={marked}
            aria-label={`mark candidate ${row.number} for comparison`}
            onMouseDown={(event) => event.stopPropagation()}
            onClick={() => mark(row.number)}
          />,
        )}
        {cell("number", row.number)}
        {cell("figures", figureOf(row, measure), row.text || undefined)}
        {cell(
          "state",
          <>
            <StateSign state={signOf(row)} />
            <span class="kl-mon-cut">{fate(row)}</span>
            {row.protected && <span class="kl-label">kept</span>}
          </>,
        )}
        {cell("operator", row.operator)}
        {cell("parents", row.parents.join(", ") || NONE)}
        {cell("round", row.round)}
        {cell(
          "island",
          <>
            <span class="kl-mon-dot" style={{ background: colourOf(row.island) }} aria-hidden="true" />
            {row.island}
          </>,
        )}
        {cell("took", duration(row.seconds))}
        {cell("why", row.reason, row.reason.length > 60 ? row.reason : undefined)}
      </div>
    );
  }
}

/** No component: hundreds of cells are drawn again in each frame of a scroll. */
const cell = (column: string, shown: ComponentChildren, tip?: string) => (
  <span role="gridcell" tabIndex={-1} class={`kl-mon-${column}`} data-tip={tip}>
    {shown}
  </span>
);
