import { useEffect, useState } from "preact/hooks";

/** A value once it has not changed for a moment: after a run of arrow keys, or when nothing is typed any more. */
export function useSettled<T>(value: T, pause = 90): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (value === settled) return;
    const timer = setTimeout(() => setSettled(value), pause);
    return () => clearTimeout(timer);
  }, [value, settled, pause]);
  return settled;
}
