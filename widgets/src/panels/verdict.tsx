/** What the Verifier found: outcome, stages, the first failure with its place, the numbers with their meaning. */
import { capital } from "../format";
import { StateSign } from "../icons";
import type { Detail, Texts, TurnRow, VerdictView } from "../protocol";
import { Button, Copy, Empty, Fold, TextBox, Tip, toClipboard } from "../ui";
import type { View } from "../view";
import { ErrorMap } from "./error-map";
import { Explain } from "./explain";
import { Stages } from "./stages";
import { Whiskers } from "./whiskers";

export function VerdictPanel({ view }: { view: View }) {
  const detail = view.state.detail.value;
  const texts = view.state.texts.value;
  const { verdict, judged } = detail;
  const elsewhere = judged !== null && judged !== view.row.value?.number ? judged : null;
  return (
    <div class="kl-verdict">
      {verdict ? <Outcome verdict={verdict} of={elsewhere} /> : <Waiting view={view} detail={detail} />}
      <Stages stages={detail.stages} />
      {verdict && (
        <>
          <Whiskers comparisons={verdict.comparisons} />
          <Figures figures={verdict.figures} />
          <Wrong verdict={verdict} />
          {verdict.error_map.length > 0 && <ErrorMap map={verdict.error_map} />}
          <Compiler view={view} lines={verdict.compiler} />
          <Counters verdict={verdict} />
          <Explain
            key={detail.turn}
            view={view}
            turn={detail.turn}
            timed={verdict.figures.some((one) => one.name === "time")}
          />
        </>
      )}
      <Gate gate={detail.gate} />
      <Reproduction view={view} text={texts.reproduction} />
      {texts.log && (
        <Fold title="Whole log" aside={`${texts.log.split("\n").length} lines`}>
          <TextBox text={texts.log} />
        </Fold>
      )}
      {verdict && verdict.environment.length > 0 && (
        <Fold title="Environment" aside={verdict.environment[0]?.text}>
          <dl class="kl-pairs">
            {verdict.environment.map((one) => (
              <div key={one.name}>
                <dt>{one.name}</dt>
                <dd>{one.text}</dd>
              </div>
            ))}
          </dl>
        </Fold>
      )}
    </div>
  );
}

function Waiting({ view, detail }: { view: View; detail: Detail }) {
  const { doing, can } = view.state.head.value;
  if (detail.stages.some((stage) => stage.state === "running") || detail.stages.length > 0) {
    return <p class="kl-outcome kl-dim">The Verifier is at work{doing && `: ${doing}`}.</p>;
  }
  const later = verdictOf(view.rows.value, detail.turn);
  if (later) {
    return (
      <Empty>
        The kernel that was written from this sketch has its verdict in{" "}
        <button type="button" class="kl-link" data-action="look-verdict" onClick={() => view.look(later.id)}>
          turn {later.number}
        </button>
        .
      </Empty>
    );
  }
  const { sketch, files } = view.state.texts.value;
  if (!sketch && Object.keys(files).length === 0) return <Empty>There is nothing to verify yet.</Empty>;
  const how = can.step && view.following.value ? "Step or Run lets" : "Fork here, then Run, lets";
  return <Empty>What is shown here is not verified. {how} the Verifier look at it.</Empty>;
}

/** The first verdict on what was written from this turn's sketch: no Designer stands between the two. */
export function verdictOf(rows: readonly TurnRow[], turn: string | null): TurnRow | undefined {
  const byId = new Map(rows.map((row) => [row.id, row]));
  return rows.find((row) => {
    if (row.role !== "verifier" || (row.state !== "passed" && row.state !== "failed")) return false;
    for (let at = byId.get(row.parent ?? ""); at; at = byId.get(at.parent ?? "")) {
      if (at.id === turn) return true;
      if (at.role === "designer") return false;
    }
    return false;
  });
}

/** `of` is the turn that was judged, where another one is looked at. */
function Outcome({ verdict, of }: { verdict: VerdictView; of: number | null }) {
  return (
    <div class="kl-outcome">
      <StateSign state={verdict.passed ? "passed" : "failed"} />
      <strong class={verdict.passed ? "kl-good" : "kl-bad"}>
        {verdict.passed ? "Passed" : `Failed at ${verdict.stage}`}
      </strong>
      {of !== null && <span class="kl-dim">turn {of}</span>}
      <Tip class="kl-trust" text={verdict.trust} title={verdict.trust_text} />
      {verdict.label && <span class="kl-label">{verdict.label}</span>}
      {verdict.flags.map((flag) => (
        <span key={flag} class="kl-label kl-flag">
          {flag}
        </span>
      ))}
      {verdict.reason && <p class="kl-reason">{verdict.reason}</p>}
      {verdict.remedy && <p class="kl-reason kl-dim">{verdict.remedy}</p>}
    </div>
  );
}

/** What the GPU counted of one call, the launch that took longest first; else why nothing was. */
function Counters({ verdict }: { verdict: VerdictView }) {
  if (verdict.uncounted) return <p class="kl-dim">{verdict.uncounted}</p>;
  return (
    <>
      {verdict.launches.map((launch, index) => (
        <Fold key={index} title="The GPU's counters" aside={launch.kernel} open={index === 0}>
          <Figures figures={launch.facts} />
        </Fold>
      ))}
    </>
  );
}

function Figures({ figures }: { figures: VerdictView["figures"] }) {
  if (figures.length === 0) return null;
  return (
    <dl class="kl-pairs kl-numbers">
      {figures.map((figure) => (
        <div key={figure.name}>
          <dt>{figure.name}</dt>
          <dd>
            <Tip text={figure.text} title={figure.title} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Wrong({ verdict }: { verdict: VerdictView }) {
  const { first_wrong: first, sizes, signature } = verdict;
  const named = Object.entries(sizes);
  if (verdict.passed || (!first && named.length === 0 && !signature)) return null;
  return (
    <div class="kl-wrong">
      <div class="kl-row">
        <strong>First failing case</strong>
        {named.length > 0 && <code>{named.map(([name, size]) => `${name}=${size}`).join("  ")}</code>}
        {signature && <span class="kl-label">{signature}</span>}
      </div>
      {first && (
        <table class="kl-table">
          <thead>
            <tr>
              <th scope="col">at</th>
              <th scope="col">want</th>
              <th scope="col">got</th>
            </tr>
          </thead>
          <tbody>
            <tr>
              <td>
                <code>[{first.index.join(", ")}]</code>
              </td>
              <td>
                <code>{first.want}</code>
              </td>
              <td class="kl-bad">
                <code>{first.got}</code>
              </td>
            </tr>
          </tbody>
        </table>
      )}
    </div>
  );
}

function Compiler({ view, lines }: { view: View; lines: VerdictView["compiler"] }) {
  if (lines.length === 0) return null;
  const files = view.state.texts.value.files;
  return (
    <div class="kl-compiler">
      <strong>The compiler says</strong>
      <ul>
        {lines.map((line) => {
          const place = line.line === null ? line.file : `${line.file}:${line.line}`;
          return (
            <li key={`${place}${line.message}`}>
              {line.file in files && line.line !== null ? (
                <button
                  type="button"
                  class="kl-link"
                  onClick={() => view.open("code", { file: line.file, line: line.line ?? 1 })}
                >
                  {place}
                </button>
              ) : (
                <span class="kl-dim">{place}</span>
              )}{" "}
              <code>{line.message}</code>
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function Gate({ gate }: { gate: Detail["gate"] }) {
  if (!gate) return null;
  // of a right one the reason says that, and on how many cases
  const right = gate.state === "right";
  const facts = [
    gate.cases && !right ? `${gate.cases} small cases run` : "",
    gate.max_error !== null ? `largest error ${gate.max_error.toPrecision(2)}` : "",
  ].filter(Boolean);
  return (
    <p class="kl-gate">
      <span class="kl-dim">Sketch:</span> {right ? "" : `${capital(gate.state)}. `}
      {gate.reason}
      {facts.length > 0 && <span class="kl-dim"> {facts.join(", ")}</span>}
    </p>
  );
}

function Reproduction({ view, text }: { view: View; text: Texts["reproduction"] }) {
  if (!text) return null;
  const insert = async () => {
    // a kernel cannot put a cell where the person is, so the text is at hand in the clipboard too
    const copied = await toClipboard(text);
    const { error, note } = await view.send({ action: "insert", text });
    if (!error && !note)
      view.say(copied ? "The cell is in the clipboard, and offered as the next input." : "Offered as the next input.");
  };
  return (
    <Fold
      title="A cell that reproduces the failing case"
      tools={
        <>
          <Button action="insert" onClick={insert} busy={view.sending.value.has("insert")}>
            Copy as a cell
          </Button>
          <Copy view={view} text={text} />
        </>
      }
    >
      <TextBox text={text} />
    </Fold>
  );
}
