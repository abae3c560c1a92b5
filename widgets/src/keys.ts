/** What a key does when the focus is in the workbench and nothing is being typed. */
import type { Panel, View } from "./view";

export const PANELS: { id: Panel; name: string }[] = [
  { id: "sketch", name: "Sketch" },
  { id: "code", name: "Code" },
  { id: "verdict", name: "Verdict" },
  { id: "roofline", name: "Roofline" },
  { id: "prompt", name: "Prompt" },
  { id: "memory", name: "Memory" },
  { id: "candidates", name: "Candidates" },
  { id: "accesses", name: "Accesses" },
];

export interface Shortcut {
  keys: string[];
  words: string;
  group: "Session" | "Timeline" | "Panels";
  /** absent where another part takes the key itself */
  run?: (view: View, root: HTMLElement) => void;
}

const OPEN = ".kl-panel:not([hidden])";
const ACTIVE = ":is(button, input, select, textarea, summary, [tabindex='0']):not([aria-disabled])";

const click = (action: string) => (_: View, root: HTMLElement) =>
  root.querySelector<HTMLElement>(`[data-action="${action}"]`)?.click();

export const SHORTCUTS: Shortcut[] = [
  { group: "Session", keys: ["s"], words: "step: one more turn", run: click("step") },
  { group: "Session", keys: ["r"], words: "run until something stops it", run: click("run") },
  { group: "Session", keys: ["p"], words: "pause after the turn that runs", run: click("pause") },
  { group: "Session", keys: ["u"], words: "take your last decision back", run: click("undo") },
  { group: "Session", keys: ["f"], words: "fork at the turn that is looked at", run: click("fork") },
  { group: "Session", keys: ["a"], words: "approve what is proposed", run: click("approve") },
  { group: "Session", keys: ["q"], words: "go to the question", run: (_, root) => focus(root, `.kl-card ${ACTIVE}`) },
  { group: "Session", keys: ["Shift+X"], words: "stop the session", run: click("stop") },
  { group: "Timeline", keys: ["t"], words: "go to the timeline", run: (_, root) => focus(root, ".kl-tree") },
  { group: "Timeline", keys: ["/"], words: "find a turn", run: (_, root) => focus(root, ".kl-search input") },
  { group: "Timeline", keys: ["h"], words: "follow the newest turn", run: (view) => view.follow() },
  { group: "Timeline", keys: ["b"], words: "look at the best candidate", run: click("look-best") },
  { group: "Timeline", keys: ["\u2191", "\u2193"], words: "the turn before, the turn after" },
  { group: "Timeline", keys: ["\u2190", "\u2192"], words: "to the parent or fold; to the child or unfold" },
  ...PANELS.map(
    (panel, index): Shortcut => ({
      group: "Panels",
      keys: [String(index + 1)],
      words: panel.name,
      run: (view) => view.open(panel.id),
    }),
  ),
  {
    group: "Panels",
    keys: ["e"],
    words: "go into the open panel, to its editor where it has one",
    run: (_, root) => toEditor(root) || focus(root, `${OPEN} ${ACTIVE}`),
  },
  { group: "Panels", keys: ["Ctrl+Enter"], words: "apply or send what is being typed" },
  { group: "Panels", keys: ["Alt+P"], words: "pin the sketch line under the caret" },
  { group: "Panels", keys: ["Escape", "Tab"], words: "one after the other: leave the editor" },
  { group: "Panels", keys: ["?"], words: "these keys" },
];

/** Put the caret into the open panel's editor; the code has a sketch at its left, in which nothing is typed. */
export const toEditor = (root: HTMLElement): boolean =>
  focus(root, `${OPEN} .cm-content:not([aria-readonly])`) || focus(root, `${OPEN} .cm-content`);

/** False where there is nothing to go to. */
function focus(root: HTMLElement, selector: string): boolean {
  const found = root.querySelector<HTMLElement>(selector);
  found?.focus();
  return found !== null;
}

/**
 * Keeps the focus inside: the button that was pressed may be gone with its card, and the editor that was typed in may
 * be hidden with its panel. Without the focus no key counts. Returns the function that ends it.
 */
export function keepFocus(root: HTMLElement): () => void {
  let last: Element | null = null;
  const note = (event: FocusEvent) => {
    last = event.target as Element;
  };
  const look = new MutationObserver(() => {
    if (!last || (last.isConnected && !last.closest("[hidden]"))) return;
    // the browser takes the focus from a hidden element only when it draws the next frame
    const active = document.activeElement ?? document.body;
    if (active !== document.body && active !== last) return;
    last = null;
    root.focus({ preventScroll: true });
  });
  root.addEventListener("focusin", note);
  look.observe(root, { childList: true, subtree: true, attributes: true, attributeFilter: ["hidden"] });
  return () => {
    root.removeEventListener("focusin", note);
    look.disconnect();
  };
}

/** True while the key belongs to a text that is being typed, or to a list that is open. */
export function typing(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  if (!element || typeof element.closest !== "function") return false;
  return element.closest("input, textarea, select, [contenteditable=''], [contenteditable=true], .cm-editor") !== null;
}

export const nameOf = (event: KeyboardEvent): string =>
  event.shiftKey && /^[A-Z]$/.test(event.key) ? `Shift+${event.key}` : event.key;

export const isSave = (event: KeyboardEvent): boolean =>
  (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "s";

/**
 * Hands "save" on to the page around the view, which hears no other key from inside; true where the key was that.
 *
 * The front end looks for its shortcuts from the element of the event upwards: this one begins above the view.
 */
export function passSave(event: KeyboardEvent, root: HTMLElement): boolean {
  if (!isSave(event)) return false;
  const { key, code, keyCode, ctrlKey, metaKey } = event;
  const init = { key, code, keyCode, ctrlKey, metaKey, bubbles: true, cancelable: true, composed: true };
  root.parentElement?.dispatchEvent(new KeyboardEvent("keydown", init));
  return true;
}

/** Carries out the shortcut; false when the key is none. */
export function press(event: KeyboardEvent, view: View, root: HTMLElement): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return false;
  const shortcut = SHORTCUTS.find((one) => one.run && one.keys.includes(nameOf(event)));
  shortcut?.run?.(view, root);
  return shortcut !== undefined;
}
