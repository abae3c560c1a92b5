/**
 * Where each candidate stands under the chip's roofs, and how the speedup grew.
 *
 * Williams, Waterman, Patterson: Roofline (CACM 2009). The attainable rate is min(peak, bandwidth x intensity).
 */
import { ticks, toPixels } from "../chart";
import { percent, si, three, times } from "../format";
import type { Roofline } from "../protocol";
import { Empty, Fold } from "../ui";
import type { View } from "../view";
import { Levels } from "./levels";
import { OverDim } from "./over-dim";
import { scaleEnd } from "./whiskers";

const W = 680;
const H = 270;
const LEFT = 58;
const RIGHT = 14;
const TOP = 12;
const BOTTOM = 40;

export function RooflinePanel({ view }: { view: View }) {
  const roofline = view.state.roofline.value;
  if (roofline.points.length === 0 && roofline.history.length === 0) {
    return <Empty>Nothing is timed yet. The first verdict that passes puts a point under the chip's roofs.</Empty>;
  }
  return (
    <div class="kl-roofline">
      {roofline.points.length > 0 && <Roofs view={view} roofline={roofline} />}
      {roofline.history.length > 0 && <History view={view} roofline={roofline} />}
      {view.state.head.value.best && Object.keys(roofline.dims).length > 0 && (
        <OverDim view={view} roofline={roofline} />
      )}
      <Fold title="The same as a table" aside={`${roofline.points.length} points`}>
        <AsTable roofline={roofline} />
      </Fold>
    </div>
  );
}

export const attainable = (roofline: Roofline, intensity: number): number =>
  Math.min(roofline.peak_flops, roofline.bandwidth * intensity);

/** Up to this share of its bound a kernel may seem to reach: both are measured. */
const PASSED = 1.05;

type Place = Pick<Roofline["points"][number], "rate" | "intensity">;

const shareOf = (roofline: Roofline, point: Place): number => point.rate / attainable(roofline, point.intensity);

/** "62% of the bound"; a bound that is passed was measured badly, and is said to be none. */
export const boundWords = (roofline: Roofline, point: Place): string => {
  const share = shareOf(roofline, point);
  return share <= PASSED ? `${percent(share)} of the bound` : "no reliable bound here";
};

/** The window of a roofline: every point, the ridge, and some of both roofs. */
export function frame(roofline: Roofline) {
  const intensities = [...roofline.points.map((point) => point.intensity), roofline.ridge].filter((one) => one > 0);
  const rates = [
    ...roofline.points.map((point) => point.rate),
    ...roofline.baselines.map((one) => one.rate),
    roofline.peak_flops,
  ].filter((one) => one > 0);
  const x0 = Math.min(...intensities) / 4;
  const x1 = Math.max(...intensities) * 4;
  return { x0, x1, y0: Math.min(...rates, attainable(roofline, x0) * 2) / 2, y1: Math.max(...rates) * 2 };
}

function Roofs({ view, roofline }: { view: View; roofline: Roofline }) {
  const { x0, x1, y0, y1 } = frame(roofline);
  const x = toPixels(x0, x1, LEFT, W - RIGHT, true);
  const y = toPixels(y0, y1, H - BOTTOM, TOP, true);
  const { ridge, peak_flops: peak, bandwidth } = roofline;
  const foot = Math.max(x0, y0 / bandwidth);
  const best = roofline.points.find((point) => point.best) ?? roofline.points[roofline.points.length - 1];
  const slope = `${si(bandwidth)}B/s`;
  const at = view.at.value;
  return (
    <figure>
      <figcaption>
        <strong>Roofline</strong>{" "}
        <span class="kl-dim">
          {si(peak)}flop/s and {slope}, ridge at {three(ridge)} flop/byte
          {roofline.source && ` (${roofline.source})`}
        </span>
      </figcaption>
      <svg
        class="kl-chart"
        viewBox={`0 0 ${W} ${H}`}
        role="group"
        aria-label="roofline; the same numbers are in the table below"
      >
        {ticks(x0, x1, true, 7).map((tick) => (
          <g key={tick} class="kl-tick">
            <path d={`M${x(tick)} ${TOP}V${H - BOTTOM}`} />
            <text x={x(tick)} y={H - BOTTOM + 14} text-anchor="middle">
              {three(tick)}
            </text>
          </g>
        ))}
        <Levels at={ticks(y0, y1, true, 6)} y={y} left={LEFT} right={W - RIGHT} name={si} />
        <text class="kl-axis-name" x={(LEFT + W - RIGHT) / 2} y={H - 6} text-anchor="middle">
          intensity, flop per byte moved
        </text>
        <text
          class="kl-axis-name"
          transform={`translate(12 ${(TOP + H - BOTTOM) / 2}) rotate(-90)`}
          text-anchor="middle"
        >
          flop/s
        </text>
        <path class="kl-roof" d={`M${x(foot)} ${y(attainable(roofline, foot))}L${x(ridge)} ${y(peak)}H${W - RIGHT}`} />
        <path class="kl-guide" d={`M${x(ridge)} ${y(peak)}V${H - BOTTOM}`} />
        {best && shareOf(roofline, best) <= 1 && (
          <path
            class="kl-bound"
            d={`M${x(best.intensity)} ${y(best.rate)}V${y(attainable(roofline, best.intensity))}`}
          />
        )}
        {best &&
          roofline.baselines.map((one) => (
            <g key={one.baseline} class="kl-baseline">
              <path d={`M${x(best.intensity) - 22} ${y(one.rate)}h44`} />
              <text x={x(best.intensity) + 26} y={y(one.rate) + 3.5}>
                {one.baseline}
              </text>
            </g>
          ))}
        {roofline.points.map((point) => {
          const title = `${point.label || `turn ${point.number}`}: ${si(point.rate)}flop/s at ${three(point.intensity)} flop/byte, ${boundWords(roofline, point)}`;
          return (
            <Point
              key={point.turn}
              cx={x(point.intensity)}
              cy={y(point.rate)}
              title={title}
              best={point.best}
              shown={point.turn === at}
              pick={() => view.look(point.turn)}
            />
          );
        })}
      </svg>
      <div class="kl-legend">
        <span>
          <svg viewBox="0 0 12 12" aria-hidden="true">
            <path class="kl-point kl-point-best" d="M6 .5L11.5 6 6 11.5.5 6z" />
          </svg>
          best
        </span>
        <span>
          <svg viewBox="0 0 12 12" aria-hidden="true">
            <circle class="kl-point" cx="6" cy="6" r="3.5" />
          </svg>
          verified candidate
        </span>
        <span>
          <svg viewBox="0 0 16 12" aria-hidden="true">
            <path class="kl-baseline-key" d="M0 6h16" />
          </svg>
          baseline
        </span>
      </div>
    </figure>
  );
}

interface PointProps {
  cx: number;
  cy: number;
  title: string;
  best: boolean;
  shown: boolean;
  pick: () => void;
}

function Point({ cx, cy, title, best, shown, pick }: PointProps) {
  const kind = `kl-point${best ? " kl-point-best" : ""}${shown ? " kl-point-shown" : ""}`;
  return (
    <g
      role="button"
      tabIndex={0}
      aria-label={title}
      data-tip={title}
      onClick={pick}
      onKeyDown={(event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          pick();
        }
      }}
    >
      <circle class="kl-point-area" cx={cx} cy={cy} r="10" />
      {best ? (
        <path class={kind} d={`M${cx} ${cy - 7}l7 7-7 7-7-7z`} />
      ) : (
        <circle class={kind} cx={cx} cy={cy} r="4.5" />
      )}
    </g>
  );
}

const HISTORY = 150;

function History({ view, roofline }: { view: View; roofline: Roofline }) {
  const { history, against } = roofline;
  const numbers = history.map((one) => one.number);
  const first = Math.min(...numbers);
  const last = Math.max(...numbers);
  const high = scaleEnd(history.map((one) => ({ value: one.speedup, high: one.high })));
  const x = toPixels(first, last, LEFT + 16, W - RIGHT - 16);
  const y = toPixels(0, high, HISTORY - BOTTOM, TOP);
  const at = view.at.value;
  let top = 0;
  const record = history.filter((one) => {
    if (one.speedup <= top) return false;
    top = one.speedup;
    return true;
  });
  const steps = record.map(
    (one, index) => `${index ? "H" : "M"}${x(one.number)}${index ? `V${y(one.speedup)}` : ` ${y(one.speedup)}`}`,
  );
  return (
    <figure>
      <figcaption>
        <strong>Speedup by turn</strong> <span class="kl-dim">times {against}, with 95 % intervals</span>
      </figcaption>
      <svg
        class="kl-chart"
        viewBox={`0 0 ${W} ${HISTORY}`}
        role="group"
        aria-label="speedup by turn; the same numbers are in the table below"
      >
        <Levels at={ticks(0, high, false, 4)} y={y} left={LEFT} right={W - RIGHT} name={(tick) => `${tick}x`} />
        {turnTicks(first, last).map((tick) => (
          <text key={tick} class="kl-tick-name" x={x(tick)} y={HISTORY - BOTTOM + 14} text-anchor="middle">
            {tick}
          </text>
        ))}
        <text class="kl-axis-name" x={(LEFT + W - RIGHT) / 2} y={HISTORY - 6} text-anchor="middle">
          turn
        </text>
        <path class="kl-guide" d={`M${LEFT} ${y(1)}H${W - RIGHT}`} />
        {steps.length > 0 && <path class="kl-record" d={`${steps.join("")}H${W - RIGHT}`} />}
        {history.map((one) => (
          <path
            key={`range ${one.turn}`}
            class="kl-interval"
            d={`M${x(one.number)} ${y(one.low)}V${y(Math.min(high, one.high))}`}
          />
        ))}
        {history.map((one) => (
          <Point
            key={one.turn}
            cx={x(one.number)}
            cy={y(one.speedup)}
            title={`turn ${one.number}: ${times(one.speedup)} ${against} (95 %: ${one.low.toFixed(2)} to ${one.high.toFixed(2)})`}
            best={one.speedup === top}
            shown={one.turn === at}
            pick={() => view.look(one.turn)}
          />
        ))}
      </svg>
    </figure>
  );
}

/** Whole turn numbers only. */
export function turnTicks(first: number, last: number): number[] {
  return [...new Set(ticks(first, last, false, 8).map(Math.round))].filter((tick) => tick >= first && tick <= last);
}

function AsTable({ roofline }: { roofline: Roofline }) {
  const speedups = new Map(roofline.history.map((one) => [one.turn, one]));
  const points = new Map(roofline.points.map((one) => [one.turn, one]));
  const turns = [...new Map([...roofline.history, ...roofline.points].map((one) => [one.turn, one.number])).entries()];
  turns.sort((a, b) => a[1] - b[1]);
  return (
    <table class="kl-table">
      <thead>
        <tr>
          <th scope="col">turn</th>
          <th scope="col">flop/byte</th>
          <th scope="col">flop/s</th>
          <th scope="col">bound</th>
          <th scope="col">speedup</th>
          <th scope="col">95 % interval</th>
        </tr>
      </thead>
      <tbody>
        {turns.map(([turn, number]) => {
          const point = points.get(turn);
          const speedup = speedups.get(turn);
          return (
            <tr key={turn}>
              <td>{number}</td>
              <td>{point ? three(point.intensity) : ""}</td>
              <td>{point ? si(point.rate) : ""}</td>
              <td>{point ? boundWords(roofline, point) : ""}</td>
              <td>{speedup ? times(speedup.speedup) : ""}</td>
              <td>{speedup ? `${speedup.low.toFixed(2)} to ${speedup.high.toFixed(2)}` : ""}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
