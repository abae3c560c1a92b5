/** One tooltip for the whole workbench: what `data-tip` says, for the mouse and for the keyboard. */

import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Shown {
  text: string;
  x: number;
  y: number;
  above: boolean;
}

const DELAY_MS = 350;

export function Tooltip({ root }: { root: RefObject<HTMLElement | null> }) {
  const [shown, setShown] = useState<Shown | null>(null);
  const bubble = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = root.current;
    if (!element) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let over: Element | null = null;
    const hide = () => {
      clearTimeout(timer);
      over = null;
      setShown(null);
    };
    const show = (target: Element) => {
      const frame = element.getBoundingClientRect();
      const place = target.getBoundingClientRect();
      const above = place.top - frame.top > 60;
      setShown({
        text: target.getAttribute("data-tip") ?? "",
        x: place.left - frame.left,
        y: (above ? place.top : place.bottom) - frame.top,
        above,
      });
    };
    const enter = (event: Event) => {
      const target = (event.target as Element).closest?.("[data-tip]") ?? null;
      if (target === over) return;
      hide();
      over = target;
      if (!target) return;
      const keyboard = event.type === "focusin";
      if (keyboard && !target.matches(":focus-visible")) return;
      timer = setTimeout(() => show(target), keyboard ? 0 : DELAY_MS);
    };
    const key = (event: KeyboardEvent) => {
      if (event.key === "Escape") hide();
    };
    const events = [
      ["mouseover", enter],
      ["focusin", enter],
      ["focusout", hide],
      ["mouseleave", hide],
      ["mousedown", hide],
      ["keydown", key],
    ] as [string, (event: Event) => void][];
    for (const [name, listener] of events) element.addEventListener(name, listener);
    element.addEventListener("scroll", hide, true);
    return () => {
      clearTimeout(timer);
      for (const [name, listener] of events) element.removeEventListener(name, listener);
      element.removeEventListener("scroll", hide, true);
    };
  }, []);
  useLayoutEffect(() => {
    const box = bubble.current;
    const frame = root.current?.getBoundingClientRect();
    if (!box || !frame || !shown) return;
    // kept inside the workbench, so that an output's edge does not cut it off
    const left = Math.max(4, Math.min(shown.x, frame.width - box.offsetWidth - 4));
    box.style.left = `${left}px`;
    box.style.top = `${shown.above ? shown.y - box.offsetHeight - 5 : shown.y + 5}px`;
  }, [shown]);
  if (!shown) return null;
  return (
    <div ref={bubble} class="kl-tooltip" role="tooltip">
      {shown.text}
    </div>
  );
}
