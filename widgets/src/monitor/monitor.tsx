/** The widget: anywidget calls `render` once for every place where the run is shown. */
import { render as mount } from "preact";
import type { Model } from "../link";
import { Linked } from "../ui";
import { Monitor } from "./shell";
import { MonitorView } from "./view";
import "./monitor.css";

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const view = new MonitorView(model);
  mount(
    <Linked view={view}>
      <Monitor view={view} />
    </Linked>,
    el,
  );
  return () => {
    mount(null, el);
    view.dispose();
  };
}

export default { render };
