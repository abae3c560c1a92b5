/** How fast the best kernel is over the declared range of a Dim, the other Dims at the task's own sizes. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ticks, toPixels } from "../chart";
import { three, times } from "../format";
import type { Roofline, SizePoint } from "../protocol";
import { Button, Choice } from "../ui";
import type { View } from "../view";
import { Levels } from "./levels";
import { scaleEnd } from "./whiskers";

const W = 680;
const H = 190;
const LEFT = 58;
const RIGHT = 14;
const TOP = 12;
const BOTTOM = 40;
/** a size is compiled for, checked and timed */
const ONE_MS = 300_000;

interface Sweep {
  dim: string;
  sizes: number[];
  points: SizePoint[];
}

type Timed = SizePoint & { speedup: number; low: number; high: number };
const isTimed = (point: SizePoint): point is Timed => point.speedup !== null;

export function OverDim({ view, roofline }: { view: View; roofline: Roofline }) {
  const { against } = roofline;
  const dims = Object.keys(roofline.dims);
  const [dim, setDim] = useState(dims[0] ?? "");
  const [sweep, setSweep] = useState<Sweep | null>(null);
  const running = useRef<AbortController | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => () => running.current?.abort(), []);
  const measure = async () => {
    const abort = new AbortController();
    running.current = abort;
    setBusy(true);
    try {
      const sizes = await view.request({ ask: "sizes", dim }, { signal: abort.signal });
      const points: SizePoint[] = [];
      for (const size of sizes) {
        setSweep({ dim, sizes, points: [...points] });
        points.push(await view.request({ ask: "size", dim, size }, { signal: abort.signal, timeout: ONE_MS }));
      }
      setSweep({ dim, sizes, points });
    } catch (problem) {
      if (!abort.signal.aborted) view.say((problem as Error).message, "error");
    } finally {
      if (!abort.signal.aborted || running.current === abort) setBusy(false);
    }
  };
  return (
    <figure class="kl-over">
      <figcaption>
        <strong>Speed over a size</strong>{" "}
        <span class="kl-dim">the best kernel next to {against}; the other sizes are the task's own</span>
      </figcaption>
      <div class="kl-row">
        <Choice label="Dim" value={dim} options={dims} onChange={setDim} />
        <Button action="over" busy={busy} title="A second or more for each of at most seven sizes" onClick={measure}>
          Time it
        </Button>
        {busy && (
          <Button action="over-stop" onClick={() => running.current?.abort()}>
            Stop
          </Button>
        )}
        <span class="kl-dim" role="status">
          {busy && sweep ? `${sweep.points.length} of ${sweep.sizes.length} sizes` : ""}
        </span>
      </div>
      {sweep && sweep.points.length > 0 && (
        <>
          <Picture sweep={sweep} against={against} />
          <Table sweep={sweep} />
        </>
      )}
    </figure>
  );
}

function Picture({ sweep, against }: { sweep: Sweep; against: string }) {
  const timed = sweep.points.filter(isTimed);
  if (timed.length === 0) return null;
  const low = Math.max(1, Math.min(...sweep.sizes));
  const x = toPixels(low, Math.max(low + 1, ...sweep.sizes), LEFT + 16, W - RIGHT - 16, true);
  const top = scaleEnd(timed.map((one) => ({ value: one.speedup, high: one.high })));
  const y = toPixels(0, top, H - BOTTOM, TOP);
  return (
    <svg
      class="kl-chart"
      viewBox={`0 0 ${W} ${H}`}
      role="img"
      aria-label="speedup by size; the table below has the numbers"
    >
      <Levels at={ticks(0, top, false, 4)} y={y} left={LEFT} right={W - RIGHT} name={(tick) => `${tick}x`} />
      {sweep.sizes.map((size) => (
        <text key={size} class="kl-tick-name" x={x(Math.max(size, low))} y={H - BOTTOM + 14} text-anchor="middle">
          {size}
        </text>
      ))}
      <text class="kl-axis-name" x={(LEFT + W - RIGHT) / 2} y={H - 6} text-anchor="middle">
        {sweep.dim}
      </text>
      <path class="kl-guide" d={`M${LEFT} ${y(1)}H${W - RIGHT}`} />
      <path
        class="kl-record"
        d={timed.map((one, at) => `${at ? "L" : "M"}${x(Math.max(one.size, low))} ${y(one.speedup)}`).join("")}
      />
      {timed.map((one) => (
        <g key={one.size} data-tip={`${sweep.dim} = ${one.size}: ${times(one.speedup)} ${against}`}>
          <path class="kl-interval" d={`M${x(Math.max(one.size, low))} ${y(one.low)}V${y(Math.min(top, one.high))}`} />
          <circle class="kl-point" cx={x(Math.max(one.size, low))} cy={y(one.speedup)} r="4" />
        </g>
      ))}
    </svg>
  );
}

function Table({ sweep }: { sweep: Sweep }) {
  return (
    <table class="kl-table">
      <thead>
        <tr>
          <th scope="col">{sweep.dim}</th>
          <th scope="col">ms</th>
          <th scope="col">speedup</th>
          <th scope="col">95 % interval</th>
        </tr>
      </thead>
      <tbody>
        {sweep.points.map((one) => (
          <tr key={one.size}>
            <td>{one.size}</td>
            <td>{one.ms === null ? "" : three(one.ms)}</td>
            {isTimed(one) ? (
              <>
                <td class={one.high < 1 ? "kl-bad" : one.low > 1 ? "kl-good" : ""}>{times(one.speedup)}</td>
                <td>{`${one.low.toFixed(2)} to ${one.high.toFixed(2)}`}</td>
              </>
            ) : (
              <td colSpan={2}>{one.text}</td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
