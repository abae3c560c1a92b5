/** The widget: anywidget calls `render` once for every place where the session is shown. */
import { render as mount } from "preact";
import { linkedTurn } from "./place-link";
import { Workbench } from "./shell";
import { Linked } from "./ui";
import { type Model, View } from "./view";
import "./styles/workbench.css";

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const view = new View(model);
  const linked = linkedTurn(view.state.head.peek().id);
  if (linked) view.look(linked);
  mount(
    <Linked view={view}>
      <Workbench view={view} />
    </Linked>,
    el,
  );
  return () => {
    mount(null, el);
    view.dispose();
  };
}

export default { render };
