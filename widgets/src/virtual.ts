/** Lists of which only what is seen exists: rows of one height in a scrolling box. */
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Span {
  first: number;
  /** behind the last */
  end: number;
}

/** Rows that a box of `height` shows when scrolled to `top`, and some more on both sides. */
export function span(top: number, height: number, rowHeight: number, rows: number, more = 3): Span {
  const first = Math.max(0, Math.floor(top / rowHeight) - more);
  const end = Math.min(rows, Math.ceil((top + height) / rowHeight) + more);
  return { first: Math.min(first, Math.max(0, rows - 1)), end: Math.max(end, Math.min(rows, 1)) };
}

/** Where to scroll so that a row is seen whole, moving as little as possible. */
export function reveal(row: number, top: number, height: number, rowHeight: number): number {
  const above = row * rowHeight;
  if (above < top) return above;
  if (above + rowHeight > top + height) return above + rowHeight - height;
  return top;
}

/** The rows of `box` to draw, and `show` to bring one into sight; a head that stays covers `covered` pixels. */
export function useSpan(box: RefObject<HTMLElement | null>, rows: number, rowHeight: number, covered = 0) {
  const [at, setAt] = useState<Span>({ first: 0, end: Math.min(rows, 40) });
  const last = useRef(at);
  // never fewer than rows were ever drawn at once, so that no two rows in sight share a slot
  const slots = useRef(40);
  const measure = () => {
    const element = box.current;
    if (!element) return;
    const next = span(element.scrollTop, element.clientHeight || 400, rowHeight, rows);
    // a few pixels of scrolling leave the same rows in sight
    if (next.first === last.current.first && next.end === last.current.end) return;
    last.current = next;
    setAt(next);
  };
  useLayoutEffect(measure, [rows, rowHeight]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    element.addEventListener("scroll", measure, { passive: true });
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      watch.disconnect();
    };
  }, [rows, rowHeight]);
  const show = (row: number) => {
    const element = box.current;
    if (element) element.scrollTop = reveal(row, element.scrollTop, element.clientHeight - covered, rowHeight);
  };
  const first = Math.min(at.first, rows);
  const end = Math.min(at.end, rows);
  slots.current = Math.max(slots.current, end - first);
  return { first, end, slots: slots.current, show };
}
