/** A difference drawn into the editor: what went is shown above what came, unchanged stretches fold away. */

import { unifiedMergeView } from "@codemirror/merge";
import type { Extension } from "@codemirror/state";

const HUNK = {
  accept: { text: "Accept", title: "Keep this change: it is not marked any more" },
  reject: { text: "Refuse", title: "Put the earlier lines back; Apply hands your text in" },
};

function hunkButton(kind: "accept" | "reject", decide: (event: MouseEvent) => void): HTMLElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "kl-button kl-hunk";
  button.dataset.action = `hunk-${kind}`;
  button.dataset.tip = HUNK[kind].title;
  button.textContent = HUNK[kind].text;
  button.onmousedown = decide;
  button.onclick = (event) => event.detail === 0 && decide(event); // by keyboard: no mouse button went down
  return button;
}

/**
 * Shows how the document differs from `original`; it stays the editor that it is. Where it can be edited, each hunk can
 * be accepted or refused.
 */
export function differenceFrom(original: string, fold: boolean, editable: boolean): Extension {
  return unifiedMergeView({
    original,
    mergeControls: editable ? hunkButton : false,
    gutter: true,
    highlightChanges: true,
    // Two versions of a generated file may have nothing in common: a coarse answer is better than a
    // page that stands still at every key.
    diffConfig: { scanLimit: 300, timeout: 40 },
    ...(fold ? { collapseUnchanged: { margin: 3, minSize: 6 } } : {}),
  });
}
