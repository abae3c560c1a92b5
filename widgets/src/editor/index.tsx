import type { View } from "../view";

export function SketchPanel({ view }: { view: View }) {
  const texts = view.state.texts.value;
  return <pre>{texts.sketch}</pre>;
}
