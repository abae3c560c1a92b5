import { CodePanel } from "./code";
import { SketchPanel } from "./editor";
import type { View } from "./view";

export function Workbench({ view }: { view: View }) {
  return (
    <div class="kl" data-kernellab={view.state.head.value.name}>
      <SketchPanel view={view} />
      <CodePanel view={view} />
    </div>
  );
}
