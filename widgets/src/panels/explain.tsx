/** A verdict in words, and why its kernel is slow: by rules from the record at once, by the Analyst where a model plays. */
import { useState } from "preact/hooks";
import type { Explained } from "../protocol";
import { Button } from "../ui";
import type { View } from "../view";

type What = "verdict" | "speed";

/** The last answer of each view: it stays while another panel is open. */
const kept = new WeakMap<View, { turn: string | null; found: Explained }>();

export function Explain({ view, turn, timed }: { view: View; turn: string | null; timed: boolean }) {
  const before = kept.get(view);
  const [found, setFound] = useState<Explained | null>(before?.turn === turn ? before.found : null);
  const [busy, setBusy] = useState<What | null>(null);
  const ask = async (what: What) => {
    setBusy(what);
    try {
      const answer = await view.request({ ask: "explain", what });
      kept.set(view, { turn, found: answer });
      setFound(answer);
    } catch (problem) {
      view.say((problem as Error).message, "error");
    } finally {
      setBusy(null);
    }
  };
  const analyst = view.state.head.value.roles.analyst ?? "rules";
  return (
    <section class="kl-explain" aria-label="explanation">
      <div class="kl-row">
        <Button action="explain-verdict" busy={busy === "verdict"} onClick={() => ask("verdict")}>
          Explain this verdict
        </Button>
        {timed && (
          <Button action="explain-speed" busy={busy === "speed"} onClick={() => ask("speed")}>
            Why is it slow?
          </Button>
        )}
        {found && analyst !== "rules" && (
          <Button
            action="ask-analyst"
            busy={view.sending.value.has("analyse")}
            title="The model that plays the Analyst answers in a turn; a number that is not in the record is left out"
            onClick={() => view.send({ action: "analyse", question: found.question })}
          >
            Ask the Analyst too
          </Button>
        )}
      </div>
      {found && (
        <div role="status">
          <p>
            <strong>{found.title}</strong>
          </p>
          <ul>
            {found.points.map((point) => (
              <li key={point.text}>
                {point.text} {point.because && <span class="kl-dim">{point.because}</span>}
              </li>
            ))}
          </ul>
          {found.advice && <p class="kl-remedy">{found.advice}</p>}
        </div>
      )}
    </section>
  );
}
