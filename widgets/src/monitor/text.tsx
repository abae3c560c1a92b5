/** A long text in a box of its own. */
import type { ComponentChildren } from "preact";
import { diffKind } from "../panels/difference";

export function LongText({
  label,
  class: kind = "",
  children,
}: {
  label: string;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and must do so by keyboard too
    <pre class={`kl-text ${kind}`} role="region" tabIndex={0} aria-label={label}>
      {children}
    </pre>
  );
}

/** How two candidates' texts differ, line by line. */
export function Difference({ diff, label }: { diff: string; label: string }) {
  if (!diff) return <p class="kl-dim">Their texts are the same.</p>;
  return (
    <LongText class="kl-diff" label={label}>
      {diff.split("\n").map((line, index) => (
        <div key={index} class={diffKind(line)}>
          {line || " "}
        </div>
      ))}
    </LongText>
  );
}
