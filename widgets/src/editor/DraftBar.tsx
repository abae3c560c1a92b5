/** What a person can do with a draft; the same for a sketch and for code. */

import type { ComponentChildren } from "preact";
import { plural } from "../format";
import { Button } from "../ui";
import { type Desks, HEAD } from "./desks";

interface BarProps<Text> {
  drafts: Desks<Text>;
  /** the word on the button */
  action: string;
  onApply: (anyway?: boolean) => void;
  onRevert: () => void;
  /** errors that hold the draft back; `onApply(true)` sends it all the same */
  errors?: number;
  children?: ComponentChildren;
}

export function DraftBar<Text>({ drafts, action, onApply, onRevert, errors = 0, children }: BarProps<Text>) {
  const standing = drafts.standing.value;
  const mine = standing === "edited" || standing === "overtaken";
  const gone = drafts.view.link.value === "gone";
  return (
    <div class="kl-ed-bar" role="toolbar" aria-label="draft">
      {children}
      <span class="kl-grow kl-dim" role="status">
        {statusOf(drafts)}
      </span>
      <Button local action="revert" disabled={!mine} onClick={onRevert}>
        Revert
      </Button>
      {errors > 0 && standing === "edited" && drafts.editable.value && !gone && (
        <Button
          quiet
          action="apply-anyway"
          title="Submit it anyway: it will fail at the gate"
          onClick={() => onApply(true)}
        >
          Apply anyway
        </Button>
      )}
      <Button
        action="apply"
        primary
        disabled={standing !== "edited" || !drafts.editable.value || gone || errors > 0}
        busy={standing === "sending"}
        title={errors > 0 ? `Correct ${plural(errors, "error")} first` : "Ctrl+Enter, or Cmd+Enter on a Mac"}
        onClick={() => onApply()}
      >
        {action}
      </Button>
    </div>
  );
}

function statusOf<Text>(drafts: Desks<Text>): string {
  const elsewhere = drafts.place.value !== HEAD;
  if (drafts.view.link.value === "gone")
    return `${drafts.view.away.value ? "There is no connection" : "The kernel is gone"}; your text is kept on this page.`;
  switch (drafts.standing.value) {
    case "edited":
      return elsewhere ? "Edited, not applied. Applying starts a fork at this turn." : "Edited, not applied.";
    case "sending":
      return "On its way.";
    case "overtaken":
      return "Your text, not applied.";
    case "same":
      if (!drafts.editable.value)
        return elsewhere
          ? "Read only: an earlier turn."
          : `Read only${drafts.view.state.head.value.status === "running" ? " while the session works" : ""}.`;
      return elsewhere ? "An earlier turn: an edit starts a fork here." : "";
  }
}

interface NoticeProps<Text> {
  drafts: Desks<Text>;
  what: "sketch" | "code";
  onDifference: () => void;
  onApply: () => void;
}

/** What needs a decision: the session went on under the draft, or the kernel refused it. */
export function DraftNotice<Text>({ drafts, what, onDifference, onApply }: NoticeProps<Text>) {
  const overtaken = drafts.standing.value === "overtaken";
  return (
    <>
      {drafts.refusal.value && (
        <div class="kl-ed-notice kl-ed-refused" role="alert">
          Not applied: {drafts.refusal.value}
        </div>
      )}
      {overtaken && (
        <div class="kl-ed-notice" role="alert">
          <span class="kl-grow">The session has another {what} since you began to edit. Yours is kept here.</span>
          <Button local action="show-difference" onClick={onDifference}>
            Show the difference
          </Button>
          <Button local action="take-theirs" onClick={() => drafts.drop()}>
            Take theirs
          </Button>
          <Button action="apply-mine" disabled={!drafts.editable.value} onClick={onApply}>
            Apply mine
          </Button>
        </div>
      )}
    </>
  );
}
