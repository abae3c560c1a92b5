/** What an editor of a sketch has wherever it stands: colours, and the kernel's completion, help and findings. */

import { linter, lintGutter } from "@codemirror/lint";
import type { Extension } from "@codemirror/state";
import type { Answers, AskAt, AskCheck } from "../protocol";
import { completion, hoverHelp } from "./assist";
import { basics } from "./basics";
import { sketchSupport } from "./sketch-language";

type Question = AskCheck | (AskAt & { ask: "complete" }) | (AskAt & { ask: "hover" });
type Answered = Pick<Answers, Question["ask"]>;

/** Asks the kernel about a sketch: a session's or a search's. */
export type AskSketch = <Q extends Question>(
  ask: Q,
  options?: { signal?: AbortSignal; timeout?: number },
) => Promise<Answered[Q["ask"]]>;

const SOON_MS = 3000;

export function sketchText(request: AskSketch, label: string, help: string): Extension {
  return [
    lintGutter(),
    // the kernel's help for a place tells its findings too
    linter(null, { tooltipFilter: () => [] }),
    basics(label, help),
    sketchSupport(),
    completion((text, line, col, signal) =>
      request({ ask: "complete", text, line, col }, { signal, timeout: SOON_MS }),
    ),
    hoverHelp((text, line, col) => request({ ask: "hover", text, line, col }, { timeout: SOON_MS })),
  ];
}
