/** The verification's stages from cheap to dear; the first failure stops, the rest is not reached. */
import { duration } from "../format";
import { StateSign } from "../icons";
import type { StageRow } from "../protocol";

export function Stages({ stages }: { stages: readonly StageRow[] }) {
  if (stages.length === 0) return null;
  return (
    <ol class="kl-stages" aria-label="stages of the verification">
      {stages.map((stage) => (
        <li
          key={stage.name}
          class={`kl-stage kl-stage-${stage.state.replace(" ", "-")}`}
          data-tip={stage.note || undefined}
          aria-current={stage.state === "running" ? "step" : undefined}
        >
          <StateSign state={stage.state} />
          <span class="kl-stage-name">{stage.name}</span>
          {stage.state === "running" && stage.note && <span class="kl-dim">{stage.note}</span>}
          <span class="kl-dim kl-seconds">{duration(stage.seconds)}</span>
        </li>
      ))}
    </ol>
  );
}
