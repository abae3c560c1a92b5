/** A long text in a separate box. */
import type { ComponentChildren } from "preact";

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
