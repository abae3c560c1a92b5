/** Taking the best kernel along: how it is called and the module, where it is faster; all candidates as a table. */
import { useState } from "preact/hooks";
import { save } from "./download";
import type { Ask } from "./protocol";
import { Button, Copy } from "./ui";
import type { View } from "./view";

type What = Extract<Ask, { ask: "export" }>["what"];

export function Take({ view, call }: { view: View; call: string }) {
  const [busy, setBusy] = useState<What | null>(null);
  const fetch = async (what: What) => {
    setBusy(what);
    try {
      save(await view.request({ ask: "export", what }));
    } catch (problem) {
      view.say((problem as Error).message, "error");
    } finally {
      setBusy(null);
    }
  };
  return (
    <div class="kl-row kl-take" role="toolbar" aria-label="use the best kernel">
      {call && (
        <>
          <code>{call}</code>
          <Copy text={call} view={view}>
            Copy the call
          </Copy>
          <Button
            action="export"
            busy={busy === "module"}
            title="One Python module that needs torch and the DSL's runtime, but not kernellab"
            onClick={() => fetch("module")}
          >
            Download the module
          </Button>
        </>
      )}
      <Button
        action="export-csv"
        busy={busy === "candidates"}
        title="Every candidate with its figures, as comma-separated values"
        onClick={() => fetch("candidates")}
      >
        Candidates as CSV
      </Button>
    </div>
  );
}
