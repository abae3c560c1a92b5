/** What a glance must tell: what is designed, for what, how far it is, how fast the best candidate is, what it cost. */
import { useState } from "preact/hooks";
import { toPixels } from "./chart";
import { duration, percent, times } from "./format";
import type { BestFigures, Head, Headroom as HeadroomFigure, LedgerFigures } from "./protocol";
import { Take } from "./take";
import { Button, Tied, Tip, useElapsed } from "./ui";
import type { View } from "./view";

export function Header({ view }: { view: View }) {
  const head = view.state.head.value;
  const [taking, setTaking] = useState(false);
  return (
    <div class="kl-head">
      <div class="kl-title">
        <strong class="kl-name">{head.name}</strong>
        <span class="kl-dim kl-target">{head.target}</span>
      </div>
      <Status view={view} head={head} />
      {head.operator && (
        <code class="kl-operator" data-tip={head.operator}>
          {head.operator}
        </code>
      )}
      <div class="kl-figures">
        {head.best ? (
          <Best view={view} best={head.best} slower={!head.call} />
        ) : (
          <span class="kl-dim">no verified candidate yet</span>
        )}
        {head.ledger && <Ledger ledger={head.ledger} />}
      </div>
      {head.best && (
        <span class="kl-use">
          <Button
            action="take"
            pressed={taking}
            title={head.call ? "Call it, export it, download the figures" : "Download the figures"}
            onClick={() => setTaking(!taking)}
          >
            {head.call ? "Use it" : "Figures"}
          </Button>
        </span>
      )}
      {taking && head.best && <Take view={view} call={head.call} />}
    </div>
  );
}

function Status({ view, head }: { view: View; head: Head }) {
  const running = view.rows.value.findLast((row) => row.state === "running");
  const elapsed = useElapsed(running?.started ?? 0, head.status === "running" && running !== undefined);
  const link = view.link.value;
  const words = view.linkWords || head.status_text || head.status;
  const doing = link !== "ready" ? "" : [running && workOf(running.role), head.doing].filter(Boolean).join(", ");
  return (
    <div class={`kl-status kl-status-${link === "ready" ? head.status : link}`} data-tip={head.reason || undefined}>
      <span class="kl-lamp" aria-hidden="true" />
      <span role="status">
        {words}
        {/* what is asked stands elsewhere, and is spoken with the word that it is */}
        {link === "ready" && head.card?.pending && (
          <span class="kl-unseen">{`. ${head.card.title} ${head.card.text}`.trimEnd()}</span>
        )}
      </span>
      {doing && (
        <span class="kl-dim kl-doing">
          {doing}
          {elapsed >= 1 ? `, ${duration(elapsed)}` : ""}
        </span>
      )}
      {link === "ready" && head.next && <span class="kl-next">{head.next}</span>}
    </div>
  );
}

const workOf = (role: string) => (role === "verifier" ? "verifying" : `${role} at work`);

/** `slower`: eager is to be kept, so the fastest kernel is not the best choice. */
function Best({ view, best, slower }: { view: View; best: BestFigures; slower: boolean }) {
  return (
    <>
      <Button
        quiet
        onClick={() => view.look(best.turn)}
        title={`The ${slower ? "fastest candidate so far, no faster than eager," : "best candidate so far"} is turn ${best.number}. Click to look at it.`}
        action="look-best"
      >
        {slower ? "fastest" : "best"} #{best.number}
      </Button>
      <Tied numbers={best.tied} />
      {best.time && <Tip class="kl-figure" text={best.time.text} title={best.time.title} />}
      {best.speedups.map((speedup) => (
        <Tip
          key={speedup.baseline}
          class={`kl-figure ${speedup.low > 1 ? "kl-good" : speedup.high < 1 ? "kl-bad" : "kl-unsure"}`}
          text={speedup.text}
          title={speedup.title}
        />
      ))}
      <Attempts view={view} />
      {best.headroom && <Headroom {...best.headroom} />}
      <Tip
        class="kl-trust"
        text={best.trust}
        title={`Trust level ${best.trust}${best.label ? `, ${best.label}` : ""}`}
      />
    </>
  );
}

const SPARK = { width: 64, height: 16, edge: 2.5 };

/** The speedup of each measured turn, in their order, as a line of a word's size; nothing while there is but one. */
function Attempts({ view }: { view: View }) {
  const { history } = view.state.roofline.value;
  if (history.length < 2) return null;
  const values = history.map((one) => one.speedup);
  const x = toPixels(0, values.length - 1, SPARK.edge, SPARK.width - SPARK.edge);
  const y = toPixels(Math.min(1, ...values), Math.max(1, ...values), SPARK.height - SPARK.edge, SPARK.edge, true);
  const best = values.indexOf(Math.max(...values));
  const words = `${values.length} measured attempts: ${history.map((one) => `turn ${one.number} ${times(one.speedup)}`).join(", ")}`;
  return (
    <button
      type="button"
      class="kl-spark"
      data-action="attempts"
      data-tip={words}
      aria-label={words}
      onClick={() => view.open("roofline")}
    >
      <svg viewBox={`0 0 ${SPARK.width} ${SPARK.height}`} width={SPARK.width} height={SPARK.height} aria-hidden="true">
        <path class="kl-guide" d={`M0 ${y(1)}H${SPARK.width}`} />
        <path class="kl-spark-line" d={values.map((value, at) => `${at ? "L" : "M"}${x(at)} ${y(value)}`).join("")} />
        <circle class="kl-spark-best" cx={x(best)} cy={y(values[best] ?? 1)} r={SPARK.edge} />
      </svg>
    </button>
  );
}

/** How much of the speed-of-light bound is reached; without a bar where the bound cannot be believed. */
function Headroom({ share, text, title }: HeadroomFigure) {
  if (share === null) return <Tip class="kl-figure kl-dim" text={text} title={title} />;
  const shown = Math.min(1, Math.max(0, share));
  return (
    <span class="kl-headroom">
      <span
        class="kl-meter"
        role="meter"
        aria-label="share of the speed-of-light bound"
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(100 * shown)}
        aria-valuetext={text}
      >
        <span style={{ width: percent(shown) }} />
      </span>
      <Tip class="kl-figure" text={text} title={title} />
    </span>
  );
}

function Ledger({ ledger }: { ledger: LedgerFigures }) {
  const title = [
    ledger.tokens,
    ledger.cost,
    ledger.seconds > 0 ? `${duration(ledger.seconds)} waited for models` : "",
    ledger.budget ? `budget ${ledger.budget}` : "",
  ];
  return (
    <span class="kl-ledger">
      <Tip class="kl-dim" text={ledger.text} title={title.filter(Boolean).join("; ")} />{" "}
      {ledger.warning && <Tip class="kl-label kl-flag" text="prompts cut?" title={ledger.warning} />}
    </span>
  );
}
