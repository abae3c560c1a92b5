/** Where the wrong elements lie, over the last two dimensions of the output: one cell stands for a block of elements. */
import { plural } from "../format";

export interface Run {
  row: number;
  from: number;
  length: number;
  kind: "wrong" | "infinite";
}

const KINDS: Record<string, Run["kind"]> = { x: "wrong", n: "infinite" };

/** Neighbouring cells of one kind in a row become one rectangle. */
export function runs(map: readonly string[]): Run[] {
  const found: Run[] = [];
  for (const [row, line] of map.entries()) {
    for (let at = 0; at < line.length; at += 1) {
      const kind = KINDS[line[at] as string];
      if (!kind) continue;
      const last = found[found.length - 1];
      if (last && last.row === row && last.kind === kind && last.from + last.length === at) last.length += 1;
      else found.push({ row, from: at, length: 1, kind });
    }
  }
  return found;
}

/** "12 of 96 blocks wrong, 3 not finite, in 1 of 16 rows" */
export function describe(map: readonly string[]): string {
  const all = map.join("");
  const wrong = [...all].filter((cell) => cell === "x").length;
  const infinite = [...all].filter((cell) => cell === "n").length;
  const rows = map.filter((line) => /[xn]/.test(line)).length;
  const finite = infinite ? `, ${infinite} of them not finite` : "";
  return `${wrong + infinite} of ${plural(all.length, "block")} wrong${finite}, in ${rows} of ${plural(map.length, "row")}`;
}

const CELL = 10;
let maps = 0;

export function ErrorMap({ map }: { map: readonly string[] }) {
  const columns = Math.max(...map.map((line) => line.length));
  if (map.length === 0 || columns <= 0) return null;
  maps += 1;
  const hatch = `kl-hatch-${maps}`;
  const found = runs(map);
  const width = columns * CELL;
  const height = map.length * CELL;
  return (
    <figure class="kl-map">
      <figcaption>
        <strong>Where it is wrong</strong> <span class="kl-dim">{describe(map)}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        style={{ width: `min(100%, ${width}px)` }}
        role="img"
        aria-label={`error map: ${describe(map)}`}
      >
        <defs>
          <pattern id={hatch} width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="4" height="4" class="kl-map-wrong" />
            <rect width="2" height="4" class="kl-map-stripe" />
          </pattern>
        </defs>
        <rect class="kl-map-right" width={width} height={height} />
        {found.map((run) => (
          <rect
            key={`${run.row}:${run.from}`}
            class={run.kind === "wrong" ? "kl-map-wrong" : undefined}
            fill={run.kind === "infinite" ? `url(#${hatch})` : undefined}
            x={run.from * CELL}
            y={run.row * CELL}
            width={run.length * CELL}
            height={CELL}
          />
        ))}
        <path class="kl-map-grid" d={grid(columns, map.length)} />
      </svg>
      <div class="kl-legend">
        <span>
          <i class="kl-swatch kl-swatch-right" /> right
        </span>
        <span>
          <i class="kl-swatch kl-swatch-wrong" /> wrong
        </span>
        <span>
          <i class="kl-swatch kl-swatch-infinite" /> not finite
        </span>
        <span class="kl-dim">rows down, columns across; one cell is a block of elements</span>
      </div>
    </figure>
  );
}

function grid(columns: number, rows: number): string {
  const parts: string[] = [];
  for (let at = 0; at <= columns; at += 1) parts.push(`M${at * CELL} 0V${rows * CELL}`);
  for (let at = 0; at <= rows; at += 1) parts.push(`M0 ${at * CELL}H${columns * CELL}`);
  return parts.join("");
}
