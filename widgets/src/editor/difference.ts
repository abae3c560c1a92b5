/** A difference drawn into the editor: what went is shown above what came, unchanged stretches fold away. */

import { unifiedMergeView } from "@codemirror/merge";
import type { Extension } from "@codemirror/state";

/** Shows how the document differs from `original`; it stays the editor that it is. */
export function differenceFrom(original: string, fold: boolean): Extension {
  return unifiedMergeView({
    original,
    mergeControls: false,
    gutter: true,
    highlightChanges: true,
    // Two versions of a generated file may have nothing in common: a coarse answer is better than a
    // page that stands still at every key.
    diffConfig: { scanLimit: 300, timeout: 40 },
    ...(fold ? { collapseUnchanged: { margin: 3, minSize: 6 } } : {}),
  });
}
