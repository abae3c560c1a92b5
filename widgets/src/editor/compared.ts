/** The comparison that a question to the person opens: each hunk can be refused before the turn is approved. */
import type { Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** The question that each comparison was opened for; a panel is not there while another one is looked at. */
const openedFor = new WeakMap<object, string>();

/** Shows the difference to what `to` names once for each question `asked`, and takes it away when there is none. */
export function useCompared<A extends string>(against: Signal<A | "none">, to: A, asked: string | null, has: boolean) {
  useEffect(() => {
    if (asked === null) {
      if (openedFor.delete(against) && against.peek() === to) against.value = "none";
    } else if (has && openedFor.get(against) !== asked && against.peek() === "none") {
      openedFor.set(against, asked);
      against.value = to;
    }
  }, [asked, has]);
}
