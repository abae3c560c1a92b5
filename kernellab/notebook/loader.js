// The view's code comes as a message: what is in the widget's state, a notebook that is run without a page keeps.
const KEY = "__KEY__";
const LATE = 300; // ms until a page that was loaded later asks for it
const GONE = 5000; // ms until the saved view is shown, where no kernel answers
globalThis.kernellabViews ??= new Map();
const views = globalThis.kernellabViews;

function asked() {
  let held = views.get(KEY);
  if (!held) {
    let settle;
    const ready = new Promise((resolve) => {
      settle = resolve;
    });
    held = { ready, settle, taken: false };
    views.set(KEY, held);
  }
  return held;
}

async function take({ js, css }) {
  const held = asked();
  if (held.taken) return;
  held.taken = true;
  try {
    await show(held, js, css);
  } catch (error) {
    held.taken = false; // another view's copy may come, and the saved view stands until then
    console.error("kernellab: the view's code could not be loaded", error);
  }
}

async function show(held, js, css) {
  document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  const url = URL.createObjectURL(new Blob([js], { type: "text/javascript" }));
  held.settle((await import(url)).default);
  URL.revokeObjectURL(url);
}

export default {
  initialize({ model }) {
    model.on("msg:custom", (message) => {
      if (message?.kind === "bundle") take(message);
    });
  },
  async render({ model, el, ...more }) {
    const held = asked();
    const ask = setTimeout(() => {
      if (!held.taken) model.send({ id: "bundle", body: { ask: "bundle" } });
    }, LATE);
    const saved = setTimeout(() => {
      if (!held.taken) el.innerHTML = model.get("saved") || "<p>This view waits for its kernel. Where that has ended, run the cell again.</p>";
    }, GONE);
    let ended = false;
    let leave;
    held.ready.then((view) => {
      clearTimeout(ask);
      clearTimeout(saved);
      if (ended) return;
      el.textContent = "";
      leave = view.render({ model, el, ...more });
    });
    return () => {
      ended = true;
      clearTimeout(ask);
      clearTimeout(saved);
      leave?.();
    };
  },
};
