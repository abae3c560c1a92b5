import type { View } from "../view";

export function CodePanel({ view }: { view: View }) {
  const texts = view.state.texts.value;
  return <pre>{texts.files[texts.main_file]}</pre>;
}
