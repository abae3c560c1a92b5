/** Values of the kernel made whole, so that an older or a newer kernel is understood as far as can be. */
import type { Fill } from "./link";
import { once } from "./once";

/** By what each trait holds before the kernel has said anything: what it leaves out is empty, what it adds is ignored. */
export function filling<T extends object>(nothing: T): Fill<T> {
  return (name, value) => {
    const empty = nothing[name];
    if (typeof empty !== "object" || empty === null)
      return (typeof value === typeof empty ? value : empty) as typeof empty;
    if (Array.isArray(empty)) return (Array.isArray(value) ? value : empty) as typeof empty;
    if (value === null || typeof value !== "object") return empty;
    const known = { ...empty } as Record<string, unknown>;
    for (const [key, field] of Object.entries(value)) {
      if (!(key in known))
        once(`kernellab: the kernel's ${String(name)}.${key} is not known to this view and is ignored.`);
      else if (field !== undefined && !(field === null && known[key] !== null)) known[key] = field;
    }
    return known as typeof empty;
  };
}
