/** The turns as a tree: lanes on the left, one row a turn, forks can be folded. Only the rows in sight exist. */
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { capital, duration, plural } from "./format";
import { ActionSign, AuthorSign, RoleSign, StateSign } from "./icons";
import type { TurnRow } from "./protocol";
import { EVERYTHING, type Filter, foldsOver, type Line, type Tree, tree } from "./tree";
import { Button, useElapsed } from "./ui";
import type { View } from "./view";
import { reveal, useSpan } from "./virtual";

export const ROW = 40;
const LANE = 12;

export function Timeline({ view }: { view: View }) {
  const rows = view.rows.value;
  const at = view.at.value;
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const [filter, setFilter] = useState<Filter>(EVERYTHING);
  // where the arrow keys are; the turn that is looked at follows a moment later
  const [cursor, setCursor] = useState<string | null>(null);
  const last = useRef<Tree | null>(null);
  const { lines, index, lanes } = useMemo(() => {
    last.current = tree(rows, folded, filter, last.current);
    return last.current;
  }, [rows, folded, filter]);
  const box = useRef<HTMLDivElement>(null);
  const { first, end, slots, show } = useSpan(box, lines.length, ROW);
  const here = cursor !== null && index.has(cursor) ? cursor : at;
  const place = here === null ? -1 : (index.get(here) ?? -1);

  useEffect(() => {
    setCursor(null);
    if (at === null) return;
    const over = foldsOver(rows, folded, at);
    if (over.length) setFolded(new Set([...folded].filter((id) => !over.includes(id))));
    const target = index.get(at);
    if (target !== undefined) show(target);
  }, [at, filter]);
  const chosen = useRef((_before?: number) => {});
  chosen.current = (before) => {
    const target = at === null ? undefined : index.get(at);
    const top = box.current?.scrollTop ?? 0;
    // who has scrolled elsewhere stays there
    const away = before !== undefined && target !== undefined && reveal(target, top, before, ROW) !== top;
    if (target !== undefined && !away) show(target);
  };
  // in a list that has become shorter the turn that is looked at stays in sight
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    let height = element.clientHeight;
    const size = new ResizeObserver(() => {
      chosen.current(height);
      height = element.clientHeight;
    });
    size.observe(element);
    return () => size.disconnect();
  }, []);
  // which turn is looked at may be known before its row
  const listed = at !== null && index.has(at);
  useEffect(() => chosen.current(), [listed]);

  const go = (line: Line | undefined, soon: boolean) => {
    if (!line) return;
    setCursor(line.row.id);
    show(index.get(line.row.id) ?? 0);
    view.look(line.row.id, soon);
  };
  const fold = (id: string, closed: boolean) => {
    const next = new Set(folded);
    if (closed) next.add(id);
    else next.delete(id);
    setFolded(next);
  };
  const keys = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 400) / ROW) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page };
    const line = lines[place];
    const step = steps[event.key];
    if (step !== undefined) go(lines[Math.min(lines.length - 1, Math.max(0, place + step))], true);
    else if (event.key === "Home") go(lines[0], true);
    else if (event.key === "End") go(lines[lines.length - 1], true);
    else if (event.key === "Enter" || event.key === " ") go(line, false);
    else if (event.key === "ArrowLeft" && line) {
      if (line.fold === "open") fold(line.row.id, true);
      else go(lines[index.get(line.row.parent ?? "") ?? -1], true);
    } else if (event.key === "ArrowRight" && line) {
      if (line.fold === "closed") fold(line.row.id, false);
      else
        go(
          lines.find((other) => other.row.parent === line.row.id),
          true,
        );
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  // rows are not drawn again because these functions are new ones
  const latest = useRef({ go, fold });
  latest.current = { go, fold };
  const stable = useRef({
    pick: (line: Line) => latest.current.go(line, false),
    fold: (id: string, closed: boolean) => latest.current.fold(id, closed),
  });

  const idOf = (row: TurnRow) => `kl-turn-${view.key}-${row.id}`;
  return (
    <nav class="kl-side" aria-label="turns">
      <Filters view={view} filter={filter} setFilter={setFilter} shown={lines.length} all={rows.length} />
      <div
        ref={box}
        class={`kl-tree${lanes > 2 ? " kl-many-lanes" : ""}`}
        role="tree"
        aria-label="timeline of turns"
        tabIndex={0}
        aria-activedescendant={place >= first && place < end && here ? idOf((lines[place] as Line).row) : undefined}
        onKeyDown={keys}
      >
        <div class="kl-tree-all" style={{ height: `${lines.length * ROW}px`, "--kl-gutter": `${lanes * LANE + 6}px` }}>
          <Lanes lines={lines} first={first} end={end} lanes={lanes} here={at === null ? -1 : (index.get(at) ?? -1)} />
          {lines.slice(first, end).map((line, offset) => (
            <Turn
              // a row that comes into sight takes over the elements of one that has left it
              key={(first + offset) % slots}
              id={idOf(line.row)}
              line={line}
              place={first + offset}
              size={lines.length}
              current={line.row.id === at}
              cursor={line.row.id === here}
              {...stable.current}
            />
          ))}
        </div>
        {rows.length === 0 && (
          <p class="kl-empty">
            No turn yet.{" "}
            {view.state.head.value.card?.pending
              ? "Your answer above begins the first one."
              : "Step or Run begins the first one."}
          </p>
        )}
        {rows.length > 0 && lines.length === 0 && <p class="kl-empty">No turn passes the filter.</p>}
      </div>
    </nav>
  );
}

const WHICH: [Filter["which"], string, string][] = [
  ["all", "all", "All turns"],
  ["path", "path", "Only the turns that lead to the newest one"],
  ["verified", "passed", "Only verdicts that passed"],
  ["failed", "failed", "Only what failed"],
  ["human", "mine", "Only a person's turns"],
];

interface FiltersProps {
  view: View;
  filter: Filter;
  setFilter: (filter: Filter) => void;
  shown: number;
  all: number;
}

function Filters({ view, filter, setFilter, shown, all }: FiltersProps) {
  return (
    <div class="kl-filters">
      <label class="kl-search">
        <ActionSign action="search" />
        <span class="kl-unseen">find a turn</span>
        <input
          type="search"
          value={filter.text}
          placeholder={shown === all ? plural(all, "turn") : `${shown} of ${plural(all, "turn")}`}
          onInput={(event) => setFilter({ ...filter, text: event.currentTarget.value })}
        />
      </label>
      <select
        aria-label="which turns"
        value={filter.which}
        onChange={(event) => setFilter({ ...filter, which: event.currentTarget.value as Filter["which"] })}
      >
        {WHICH.map(([value, text, title]) => (
          <option key={value} value={value} title={title}>
            {text}
          </option>
        ))}
      </select>
      <Button
        quiet
        sign="follow"
        action="follow"
        label="follow the newest turn"
        title={view.following.value ? "Following the newest turn" : "Follow the newest turn (h)"}
        pressed={view.following.value}
        onClick={() => view.follow()}
      />
    </div>
  );
}

interface TurnProps {
  id: string;
  line: Line;
  place: number;
  size: number;
  current: boolean;
  cursor: boolean;
  pick: (line: Line) => void;
  fold: (id: string, closed: boolean) => void;
}

/** Drawn again only when something in it changed: scrolling through thousands of rows must cost little. */
class Turn extends Component<TurnProps> {
  override shouldComponentUpdate(next: TurnProps): boolean {
    const { line, ...rest } = this.props as TurnProps;
    return (
      (Object.keys(rest) as (keyof typeof rest)[]).some((key) => next[key] !== rest[key]) ||
      (Object.keys(line) as (keyof Line)[]).some((key) => next.line[key] !== line[key])
    );
  }

  override render({ id, line, place, size, current, cursor, pick, fold }: TurnProps) {
    const { row } = line;
    const kinds = [
      "kl-turn",
      current && "kl-current",
      cursor && "kl-cursor",
      !row.on_path && "kl-off-path",
      (row.state === "superseded" || row.state === "stopped") && "kl-superseded",
    ];
    return (
      <div
        id={id}
        role="treeitem"
        tabIndex={-1}
        aria-level={line.level}
        aria-posinset={place + 1}
        aria-setsize={size}
        aria-selected={current}
        aria-expanded={line.fold === null ? undefined : line.fold === "open"}
        aria-label={spoken(row)}
        class={kinds.filter(Boolean).join(" ")}
        style={{ transform: `translateY(${place * ROW}px)` }}
        onMouseDown={(event) => {
          // the tree keeps the focus: rows come and go while it scrolls
          event.preventDefault();
          (event.currentTarget.closest(".kl-tree") as HTMLElement | null)?.focus();
          pick(line);
        }}
      >
        <StateSign state={row.state} />
        <span class="kl-turn-who">
          <RoleSign role={row.role} />
          <span class="kl-role">{capital(row.role)}</span>
          <span class="kl-dim kl-by">
            <AuthorSign author={row.author} />
            <span class="kl-author">{row.author}</span>
          </span>
        </span>
        <span class="kl-turn-facts">
          <Took row={row} />
          <span class="kl-number">{row.number}</span>
        </span>
        <span class="kl-turn-note">
          {line.fold !== null && (
            <button
              type="button"
              tabIndex={-1}
              class="kl-fold-mark"
              title={line.fold === "open" ? "fold this branch" : "unfold this branch"}
              onMouseDown={(event) => {
                event.preventDefault();
                event.stopPropagation();
                fold(row.id, line.fold === "open");
              }}
            >
              {line.fold === "open" ? "fork \u2212" : `fork +${line.hidden}`}
            </button>
          )}
          {row.note}
        </span>
      </div>
    );
  }
}

function Took({ row }: { row: TurnRow }) {
  const running = row.state === "running";
  const elapsed = useElapsed(row.started, running);
  return <span class="kl-seconds">{running ? duration(Math.floor(elapsed)) : duration(row.seconds)}</span>;
}

const spoken = (row: TurnRow): string =>
  [`turn ${row.number}`, `${row.role} by ${row.author}`, row.state, row.note].filter(Boolean).join(", ");

const MIDDLE = 11; // of a row's first line
const laneX = (lane: number) => lane * LANE + LANE / 2 + 1;

/** The lanes behind the rows in sight: one picture, which is much cheaper than one a row. */
function Lanes({
  lines,
  first,
  end,
  lanes,
  here,
}: {
  lines: Line[];
  first: number;
  end: number;
  lanes: number;
  here: number;
}) {
  const edges: string[] = [];
  const dots: string[] = [];
  for (let at = first; at < end; at += 1) {
    const line = lines[at];
    if (!line) continue;
    const top = (at - first) * ROW;
    for (let lane = 0; lane < lanes; lane += 1) {
      const bit = 1 << lane;
      const x = laneX(lane);
      if (line.above & bit) edges.push(`M${x} ${top}v${MIDDLE}`);
      if (line.below & bit) edges.push(`M${x} ${top + MIDDLE}V${top + ROW}`);
      if (line.opens & bit) {
        const from = laneX(line.lane);
        edges.push(`M${from} ${top + MIDDLE}C${from} ${top + ROW - 8} ${x} ${top + MIDDLE + 6} ${x} ${top + ROW}`);
      }
    }
    dots.push(dot(laneX(line.lane), top + MIDDLE));
  }
  const shown = lines[here];
  return (
    <svg
      class="kl-lanes"
      width={lanes * LANE + 2}
      height={(end - first) * ROW}
      style={{ transform: `translateY(${first * ROW}px)` }}
      aria-hidden="true"
    >
      <path d={edges.join("")} />
      <path class="kl-lane-dots" d={dots.join("")} />
      {shown && here >= first && here < end && (
        <path class="kl-lane-here" d={dot(laneX(shown.lane), (here - first) * ROW + MIDDLE)} />
      )}
    </svg>
  );
}

const dot = (x: number, y: number): string => `M${x - 3} ${y}a3 3 0 1 0 6 0a3 3 0 1 0-6 0z`;
