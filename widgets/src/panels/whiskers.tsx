/** Speedups against each baseline with their 95 % intervals, on one scale; 1x is the baseline. */
import { ticks, toPixels } from "../chart";
import type { VerdictView } from "../protocol";
import { Tip } from "../ui";

type Comparison = VerdictView["comparisons"][number];

/** The right end of the scale: a value must not be squeezed by an interval that is far wider than itself. */
export function scaleEnd(ranges: readonly { value: number; high: number }[]): number {
  const largest = Math.max(1, ...ranges.map((one) => one.value));
  return Math.max(1.25, Math.min(2.5 * largest, Math.max(...ranges.map((one) => one.high)))) * 1.04;
}

export function Whiskers({ comparisons }: { comparisons: readonly Comparison[] }) {
  if (comparisons.length === 0) return null;
  const high = scaleEnd(comparisons);
  const share = toPixels(0, high, 0, 100);
  return (
    <div class="kl-whiskers">
      {comparisons.map((one) => (
        <div key={one.baseline} class="kl-whisker">
          <span class="kl-whisker-name">{one.baseline}</span>
          <span class="kl-track" role="img" aria-label={`${one.text}; ${one.title}`} data-tip={one.title}>
            <span class={`kl-bar ${one.value < 1 ? "kl-bar-slow" : ""}`} style={{ width: `${share(one.value)}%` }} />
            <span
              class={`kl-range${one.high > high ? " kl-range-beyond" : ""}`}
              style={{ left: `${share(one.low)}%`, width: `${share(Math.min(high, one.high)) - share(one.low)}%` }}
            />
            <span class="kl-one" style={{ left: `${share(1)}%` }} />
          </span>
          <Tip class={`kl-whisker-value ${one.distinguishable ? "" : "kl-dim"}`} text={one.text} title={one.title} />
        </div>
      ))}
      <div class="kl-whisker kl-whisker-scale" aria-hidden="true">
        <span class="kl-whisker-name" />
        <span class="kl-track kl-track-bare">
          {ticks(0, high, false, 5).map((tick) => (
            <span key={tick} class="kl-track-tick" style={{ left: `${share(tick)}%` }}>
              {tick}x
            </span>
          ))}
        </span>
        <span class="kl-whisker-value" />
      </div>
    </div>
  );
}
