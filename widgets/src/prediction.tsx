/** Teaching mode: say what you expect before it is measured, and see afterwards how well you knew. */
import { useState } from "preact/hooks";
import { ticks, toPixels } from "./chart";
import { times } from "./format";
import type { Prediction } from "./protocol";
import { Area, Button, Fold } from "./ui";
import type { View } from "./view";

export function PredictionCard({ view }: { view: View }) {
  const { teaching, prediction } = view.state.head.value;
  if (!teaching || !prediction) return null;
  const { asked, expected, history } = prediction;
  if (!asked && expected === null && history.length === 0) return null;
  return (
    <section class="kl-card kl-card-predict" aria-label="prediction">
      {asked && expected === null && <Ask key={prediction.turn} view={view} />}
      {expected !== null && <Outcome prediction={prediction} />}
      {history.length > 0 && (
        <Fold title="Your predictions so far" aside={calibrationWords(history)}>
          <Calibration history={history} />
        </Fold>
      )}
    </section>
  );
}

function Ask({ view }: { view: View }) {
  const [expected, setExpected] = useState("");
  const [reason, setReason] = useState("");
  const value = readSpeedup(expected);
  const busy = view.sending.value.has("predict");
  const send = () => value !== null && view.send({ action: "predict", expected: value, reason });
  return (
    <>
      <h3 class="kl-card-title">How fast will it be?</h3>
      <div class="kl-row">
        <label class="kl-choice">
          <span class="kl-dim">times as fast as the reference</span>
          <input
            class="kl-input"
            inputMode="decimal"
            size={6}
            value={expected}
            placeholder="2.5"
            aria-invalid={expected !== "" && value === null}
            onInput={(event) => setExpected(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter") send();
            }}
          />
        </label>
        {expected !== "" && value === null && <span class="kl-bad">A number above 0, such as 2.5</span>}
      </div>
      <Area
        label="because"
        value={reason}
        rows={1}
        placeholder="because it reads the input once instead of three times"
        onInput={setReason}
        onSubmit={send}
      />
      <div class="kl-row">
        <Button primary action="predict" disabled={value === null} busy={busy} onClick={send}>
          Predict and measure
        </Button>
        <Button
          action="no-prediction"
          busy={busy}
          onClick={() => view.send({ action: "predict", expected: null, reason: "" })}
        >
          Measure without a prediction
        </Button>
      </div>
    </>
  );
}

/** "2,5", "2.5x" and "2.5" are 2.5; null when it is no number above 0 */
export function readSpeedup(text: string): number | null {
  const value = Number(text.trim().replace(",", ".").replace(/x$/i, ""));
  return text.trim() !== "" && Number.isFinite(value) && value > 0 ? value : null;
}

function Outcome({ prediction }: { prediction: Prediction }) {
  const { expected, measured, reason } = prediction;
  return (
    <p class="kl-predicted">
      You expected <strong>{times(expected)}</strong>
      {reason && <span class="kl-dim"> ({reason})</span>}
      {measured === null ? (
        <span class="kl-dim">, not measured yet</span>
      ) : (
        <>
          , measured <strong>{times(measured)}</strong>
        </>
      )}
    </p>
  );
}

/** The typical factor between what was expected and what was measured. */
export function calibrationWords(history: Prediction["history"]): string {
  const logs = history
    .filter((one) => one.expected > 0 && one.measured > 0)
    .map((one) => Math.abs(Math.log(one.expected / one.measured)));
  if (logs.length === 0) return "";
  const factor = Math.exp(logs.reduce((sum, log) => sum + log, 0) / logs.length);
  return `within a factor of ${factor.toFixed(2)} on average`;
}

const SIZE = 180;
const EDGE = 30;

function Calibration({ history }: { history: Prediction["history"] }) {
  const values = history.flatMap((one) => [one.expected, one.measured]).filter((value) => value > 0);
  const low = Math.min(...values, 1) / 1.3;
  const high = Math.max(...values, 1) * 1.3;
  const x = toPixels(low, high, EDGE, SIZE - 8, true);
  const y = toPixels(low, high, SIZE - EDGE, 8, true);
  return (
    <div class="kl-row kl-top">
      <svg
        class="kl-chart"
        viewBox={`0 0 ${SIZE} ${SIZE}`}
        width={SIZE}
        height={SIZE}
        role="img"
        aria-label={`expected against measured speedups, ${calibrationWords(history)}`}
      >
        <path class="kl-axis" d={`M${EDGE} 8V${SIZE - EDGE}H${SIZE - 8}`} />
        <path class="kl-guide" d={`M${x(low)} ${y(low)}L${x(high)} ${y(high)}`} />
        {ticks(low, high, true, 4).map((tick) => (
          <g key={tick} class="kl-tick">
            <text x={x(tick)} y={SIZE - EDGE + 12} text-anchor="middle">
              {tick}
            </text>
            <text x={EDGE - 4} y={y(tick) + 3} text-anchor="end">
              {tick}
            </text>
          </g>
        ))}
        <text class="kl-axis-name" x={(EDGE + SIZE) / 2} y={SIZE - 4} text-anchor="middle">
          expected, times eager
        </text>
        <text class="kl-axis-name" transform={`translate(9 ${(SIZE - EDGE) / 2}) rotate(-90)`} text-anchor="middle">
          measured
        </text>
        {history.map((one) => (
          <circle key={one.turn} class="kl-dot" cx={x(one.expected)} cy={y(one.measured)} r="4" />
        ))}
      </svg>
      <table class="kl-table">
        <thead>
          <tr>
            <th scope="col">expected</th>
            <th scope="col">measured</th>
          </tr>
        </thead>
        <tbody>
          {history.slice(-8).map((one) => (
            <tr key={one.turn}>
              <td>{times(one.expected)}</td>
              <td>{times(one.measured)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
