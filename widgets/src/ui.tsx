/** Small parts that every panel uses. */
import type { ReadonlySignal } from "@preact/signals";
import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { ActionSign } from "./icons";
import { type Connection, Unanswered } from "./link";
import type { View } from "./view";

/** Has the kernel ended? What needs it looks so, and does nothing. */
const Gone = createContext(false);

interface LinkedProps {
  view: { readonly link: ReadonlySignal<Connection> };
  children: ComponentChildren;
}

export function Linked({ view, children }: LinkedProps) {
  return <Gone.Provider value={view.link.value === "gone"}>{children}</Gone.Provider>;
}

interface ButtonProps {
  children?: ComponentChildren;
  onClick: () => void;
  title?: string;
  /** the name by which tests and the help find it */
  action?: string;
  sign?: string;
  primary?: boolean;
  quiet?: boolean;
  disabled?: boolean;
  busy?: boolean;
  pressed?: boolean;
  label?: string;
  /** it works in the page alone, without a kernel */
  local?: boolean;
}

export function Button(props: ButtonProps) {
  const { children, onClick, title, action, sign, primary, quiet, busy, pressed, label, local } = props;
  const gone = useContext(Gone);
  const disabled = props.disabled || (gone && !local);
  return (
    <button
      type="button"
      class={`kl-button${primary ? " kl-primary" : ""}${quiet ? " kl-quiet" : ""}${busy ? " kl-sending" : ""}`}
      data-action={action}
      data-tip={title}
      aria-label={label}
      aria-pressed={pressed}
      aria-disabled={disabled || busy ? true : undefined}
      onClick={() => {
        // aria-disabled instead of disabled: a button that is refused for a moment keeps the focus
        if (!disabled && !busy) onClick();
      }}
    >
      {sign && <ActionSign action={sign} />}
      {children}
    </button>
  );
}

/** Verified kernels that are not certainly slower than the best: their first few, the rest counted. */
export function Tied({ numbers }: { numbers: readonly number[] }) {
  if (numbers.length === 0) return null;
  const more = numbers.length > NAMED ? ` and ${numbers.length - NAMED} more` : "";
  return (
    <Tip
      class="kl-dim"
      text={`tied with ${numbers.slice(0, NAMED).join(", ")}${more}`}
      title="Their intervals, of one run where it timed both, overlap: none of them is certainly faster."
    />
  );
}

/** tied kernels that are named */
const NAMED = 5;

/** A number or a word with its meaning as a tooltip, reachable by keyboard and read out by a screen reader. */
export function Tip({ text, title, class: kind = "" }: { text: ComponentChildren; title: string; class?: string }) {
  if (!title) return <span class={kind}>{text}</span>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the tooltip must be reachable without a mouse
    <span class={`kl-tipped ${kind}`} data-tip={title} tabIndex={0}>
      {text}
      <span class="kl-unseen">, {title}</span>
    </span>
  );
}

/** Copies to the clipboard; where the page may not, the text is selected for the person to copy. */
interface CopyProps {
  text: string;
  children?: ComponentChildren;
  view: View;
  quiet?: boolean;
}

export function Copy({ text, children = "Copy", view, quiet = false }: CopyProps) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    if (await toClipboard(text)) setDone(true);
    else view.say("This page may not write to the clipboard. Select the text and copy it with Ctrl+C.", "error");
  };
  return (
    <Button local onClick={copy} sign="copy" action="copy" quiet={quiet}>
      {done ? "Copied" : children}
    </Button>
  );
}

export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // plain http, or a frame without the permission: the old way still works there
    const area = document.createElement("textarea");
    area.value = text;
    area.style.position = "fixed";
    area.style.opacity = "0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export const Empty = ({ children }: { children: ComponentChildren }) => <p class="kl-empty">{children}</p>;

interface FoldProps {
  title: ComponentChildren;
  children: ComponentChildren;
  open?: boolean;
  /** words at the right end of the title */
  aside?: ComponentChildren;
  /** buttons next to the title; outside of it, so that they do not fold */
  tools?: ComponentChildren;
}

export function Fold({ title, children, open = false, aside, tools }: FoldProps) {
  return (
    <div class="kl-fold">
      <details open={open}>
        <summary>
          <span class="kl-fold-title">{title}</span>
          {aside && <span class="kl-aside">{aside}</span>}
        </summary>
        <div class="kl-fold-body">{children}</div>
      </details>
      {tools && <div class="kl-fold-tools">{tools}</div>}
    </div>
  );
}

/** A text as it was written, in a box that scrolls where it is long. */
export function TextBox({ text, bad = false }: { text: string; bad?: boolean }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and must do so by keyboard too
    <pre class={`kl-text${bad ? " kl-bad" : ""}`} tabIndex={0}>
      {text}
    </pre>
  );
}

interface AreaProps {
  value: string;
  onInput: (text: string) => void;
  label: string;
  rows?: number;
  code?: boolean;
  placeholder?: string;
  onSubmit?: () => void;
  readOnly?: boolean;
}

/** A text area that grows with its text. */
export function Area({ value, onInput, label, rows = 2, code, placeholder, onSubmit, readOnly }: AreaProps) {
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && onSubmit) {
      event.preventDefault();
      onSubmit();
    }
  };
  return (
    <textarea
      class={`kl-area${code ? " kl-mono" : ""}`}
      aria-label={label}
      rows={Math.min(14, Math.max(rows, value.split("\n").length))}
      value={value}
      placeholder={placeholder}
      readOnly={readOnly}
      spellcheck={!code}
      onInput={(event) => onInput(event.currentTarget.value)}
      onKeyDown={keys}
    />
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  options: readonly string[];
  onChange: (value: string) => void;
  title?: string;
  hideLabel?: boolean;
  local?: boolean;
}

/** `replay:/a/b/c.jsonl` as `replay:c.jsonl`: a whole path would push the other fields away. */
export function withoutFolders(option: string): string {
  return option.replace(/^(replay:).*[\\/]/, "$1");
}

export function Choice({ label, value, options, onChange, title, hideLabel, local }: ChoiceProps) {
  const gone = useContext(Gone);
  const all = options.includes(value) ? options : [value, ...options];
  return (
    <label class="kl-choice" data-tip={title}>
      <span class={hideLabel ? "kl-unseen" : "kl-dim"}>{label}</span>
      <select
        value={value}
        disabled={gone && !local}
        onChange={(event) => {
          const wanted = event.currentTarget.value;
          // what is shown is the kernel's answer, not the click: until it comes the old value stands
          event.currentTarget.value = value;
          onChange(wanted);
        }}
      >
        {all.map((option) => (
          <option key={option} value={option}>
            {withoutFolders(option)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Seconds since a moment, counted on while `on`; reduced to whole seconds, so that little is drawn. */
export function useElapsed(started: number, on: boolean): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, [on]);
  return on && started > 0 ? Math.max(0, now - started) : 0;
}

/** A question that the kernel did not hear in time is asked again after this long. */
export const AGAIN_MS = 3_000;

/**
 * A value that is asked from the kernel when `key` changes; an older answer never replaces a newer one. A kernel that
 * says nothing is asked again, as long as the value is shown: it may have been busy, restarted or out of reach.
 */
export function useAnswer<T>(key: string | null, ask: (signal: AbortSignal) => Promise<T>) {
  const [answer, setAnswer] = useState<{ key: string; value?: T; error?: string } | null>(null);
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    if (key === null) return;
    const abort = new AbortController();
    let again: ReturnType<typeof setTimeout> | undefined;
    const put = () =>
      latest.current(abort.signal).then(
        (value) => setAnswer({ key, value }),
        (error: Error) => {
          if (abort.signal.aborted) return;
          setAnswer((now) => (now?.key === key && now.error === error.message ? now : { key, error: error.message }));
          if (error instanceof Unanswered && error.unheard) again = setTimeout(put, AGAIN_MS);
        },
      );
    void put();
    return () => {
      clearTimeout(again);
      abort.abort();
    };
  }, [key]);
  return answer !== null && answer.key === key ? answer : null;
}
