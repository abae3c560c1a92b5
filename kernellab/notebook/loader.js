// The view's code comes as a message, once a kernel or when a page asks: what is in the widget's state, a notebook that
// is run without a page keeps, and 0.6 MB for each of a page's views is more than Jupyter lets through in a second.
const KEY = "__KEY__";
const LATE = 300; // ms until a page that was loaded later asks for it
const AGAIN = [3000, 10000, 30000]; // ms until it asks again, where no answer comes; the last one again and again
const GONE = 5000; // ms until the saved view is shown, where no kernel answers
globalThis.kernellabViews ??= new Map();
const views = globalThis.kernellabViews;

/** What all views of a page share: the code, and when one of them asks for it next. */
function shared() {
  let held = views.get(KEY);
  if (!held) {
    let settle;
    const ready = new Promise((resolve) => {
      settle = resolve;
    });
    held = { ready, settle, taken: false, css: "", asks: 0, next: Date.now() + LATE };
    views.set(KEY, held);
  }
  return held;
}

function ask(model) {
  const held = shared();
  if (held.taken || Date.now() < held.next) return;
  held.next = Date.now() + AGAIN[Math.min(held.asks, AGAIN.length - 1)];
  held.asks += 1;
  try {
    model.send({ id: `bundle-${held.asks}`, body: { ask: "bundle" } });
  } catch {
    // this view's kernel is gone, and its saved view is shown; a view of another kernel asks for itself
  }
}

async function take({ js, css }) {
  const held = shared();
  if (held.taken) return;
  held.taken = true;
  try {
    const url = URL.createObjectURL(new Blob([js], { type: "text/javascript" }));
    const view = (await import(url)).default;
    URL.revokeObjectURL(url);
    held.css = css;
    held.settle(view);
  } catch (error) {
    held.taken = false; // another view's copy may come, and the saved view stands until then
    console.error("kernellab: the view's code could not be loaded", error);
  }
}

/** Where the view stands: the page, or a shadow root, which no style of the page reaches. */
function dress(el, css) {
  const root = el.getRootNode();
  const place = root instanceof ShadowRoot ? root : document.head;
  if ([...place.querySelectorAll("style[data-kernellab]")].some((style) => style.dataset.kernellab === KEY)) return;
  const style = Object.assign(document.createElement("style"), { textContent: css });
  style.dataset.kernellab = KEY;
  place.append(style);
}

export default {
  initialize({ model }) {
    model.on("msg:custom", (message) => {
      if (message?.kind === "bundle") take(message);
    });
  },
  async render({ model, el, ...more }) {
    const held = shared();
    if (!held.taken && held.next < Date.now()) held.next = Date.now() + LATE; // the kernel may send it just now
    const asking = setInterval(() => ask(model), LATE);
    const saved = setTimeout(() => {
      if (!held.taken) el.innerHTML = model.get("saved") || "<p>This view waits for its kernel. Where that has ended, run the cell again.</p>";
    }, GONE);
    const rest = () => {
      clearInterval(asking);
      clearTimeout(saved);
    };
    let ended = false;
    let leave;
    held.ready.then((view) => {
      rest();
      if (ended) return;
      dress(el, held.css);
      requestAnimationFrame(() => ended || dress(el, held.css)); // some front ends attach what was drawn afterwards
      el.textContent = "";
      leave = view.render({ model, el, ...more });
    }).catch((error) => {
      console.error("kernellab: the view could not be drawn", error);
      el.textContent = `The view could not be drawn (${error}). Run the cell again, or load the page again.`;
    });
    return () => {
      ended = true;
      rest();
      leave?.();
    };
  },
};
