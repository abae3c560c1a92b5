/** What was remembered for the turn that is looked at, and why it was thought to fit. */
import { Empty, Fold } from "../ui";
import type { View } from "../view";

export function MemoryPanel({ view }: { view: View }) {
  const { memory } = view.state.detail.value;
  if (memory.length === 0) return <Empty>Nothing was recalled for this turn.</Empty>;
  return (
    <div class="kl-memory">
      {memory.map((one, index) => (
        <Fold key={`${one.title}${one.text.length}`} title={one.title} aside={one.why} open={index === 0}>
          <pre class="kl-text">{one.text}</pre>
        </Fold>
      ))}
    </div>
  );
}
