/** The keys, over the workbench; Escape or a click outside closes it. */
import { useEffect, useRef } from "preact/hooks";
import { SHORTCUTS, type Shortcut } from "./keys";
import { Button } from "./ui";

const GROUPS: Shortcut["group"][] = ["Session", "Timeline", "Panels"];

export function Help({ close }: { close: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the veil only repeats what Escape does
    <div
      class="kl-veil"
      onMouseDown={(event) => {
        if (event.target === event.currentTarget) close();
      }}
    >
      <div
        ref={box}
        class="kl-help"
        role="dialog"
        aria-modal="true"
        aria-label="keys"
        tabIndex={-1}
        onKeyDown={(event) => {
          event.stopPropagation();
          if (event.key === "Escape" || event.key === "?") close();
          if (event.key !== "Tab") return;
          // a dialog keeps the focus, and this one has a single button
          event.preventDefault();
          box.current?.querySelector("button")?.focus();
        }}
      >
        <div class="kl-help-groups">
          {GROUPS.map((group) => (
            <section key={group}>
              <h3>{group}</h3>
              <dl>
                {SHORTCUTS.filter((one) => one.group === group).map((one) => (
                  <div key={one.keys.join()}>
                    <dt>
                      {one.keys.map((key) => (
                        <kbd key={key}>{key}</kbd>
                      ))}
                    </dt>
                    <dd>{one.words}</dd>
                  </div>
                ))}
              </dl>
            </section>
          ))}
        </div>
        <p class="kl-dim">
          Keys work when the workbench has the focus and you are not typing. Everything here is also a magic and a
          method of the session, by the same words.
        </p>
        <Button local action="close-help" onClick={close}>
          Close
        </Button>
      </div>
    </div>
  );
}
