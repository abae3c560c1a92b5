/** What a person can do with a draft; the same for a sketch and for code. */

import type { ComponentChildren } from "preact";
import { type Desks, HEAD } from "./desks";

interface BarProps<Text> {
  drafts: Desks<Text>;
  /** the word on the button */
  action: string;
  onApply: () => void;
  onRevert: () => void;
  children?: ComponentChildren;
}

export function DraftBar<Text>({ drafts, action, onApply, onRevert, children }: BarProps<Text>) {
  const standing = drafts.standing.value;
  const mine = standing === "edited" || standing === "overtaken";
  const gone = drafts.view.link.value === "gone";
  return (
    <div class="kl-ed-bar" role="toolbar" aria-label="draft">
      {children}
      <span class="kl-ed-fill kl-ed-dim" role="status">
        {statusOf(drafts)}
      </span>
      <button type="button" disabled={!mine} onClick={onRevert}>
        Revert
      </button>
      <button
        type="button"
        class="kl-ed-main"
        disabled={standing !== "edited" || !drafts.editable.value || gone}
        title="Ctrl-Enter, or Cmd-Enter on a Mac"
        onClick={onApply}
      >
        {standing === "sending" ? "Sending" : action}
      </button>
    </div>
  );
}

function statusOf<Text>(drafts: Desks<Text>): string {
  const elsewhere = drafts.place.value !== HEAD;
  if (drafts.view.link.value === "gone") return "The kernel is gone; your text is kept on this page.";
  switch (drafts.standing.value) {
    case "edited":
      return elsewhere ? "Edited, not applied. Applying starts a fork at this turn." : "Edited, not applied.";
    case "sending":
      return "On its way.";
    case "overtaken":
      return "Your text, not applied.";
    case "same":
      if (!drafts.editable.value)
        return elsewhere ? "Read only: an earlier turn." : "Read only while the session works.";
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
  if (drafts.refusal.value) {
    return (
      <div class="kl-ed-notice kl-ed-refused" role="alert">
        <span>Not applied: {drafts.refusal.value}</span>
      </div>
    );
  }
  if (drafts.standing.value !== "overtaken") return null;
  return (
    <div class="kl-ed-notice" role="alert">
      <span class="kl-ed-fill">The session has another {what} since you began to edit. Yours is kept here.</span>
      <button type="button" onClick={onDifference}>
        Show the difference
      </button>
      <button type="button" onClick={() => drafts.drop()}>
        Take theirs
      </button>
      <button type="button" disabled={!drafts.editable.value} onClick={onApply}>
        Apply mine
      </button>
    </div>
  );
}
