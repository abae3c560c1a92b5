/** What was remembered for the turn that is looked at, and the memory itself: search, why, values, a person's word. */
import { useEffect, useState } from "preact/hooks";
import type { MemoryHit, MemoryPage } from "../protocol";
import { Button, Empty, Fold, TextBox } from "../ui";
import type { View } from "../view";

export function MemoryPanel({ view }: { view: View }) {
  const { memory } = view.state.detail.value;
  return (
    <div class="kl-memory">
      {memory.map((one, index) => (
        <Fold key={`${one.title}${one.text.length}`} title={one.title} aside={one.why} open={index === 0}>
          <TextBox text={one.text} />
        </Fold>
      ))}
      <Search view={view} />
    </div>
  );
}

function Search({ view }: { view: View }) {
  const [words, setWords] = useState("");
  const [found, setFound] = useState<MemoryPage | null>(null);
  const [busy, setBusy] = useState(false);
  const ask = async (text: string) => {
    setBusy(true);
    try {
      setFound(await view.request({ ask: "memory", words: text }));
    } catch (problem) {
      setFound({ hits: [], note: (problem as Error).message });
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    ask("");
  }, []);
  const passed = view.state.head.value.best !== null;
  return (
    <section aria-label="memory">
      <form
        class="kl-row"
        onSubmit={(event) => {
          event.preventDefault();
          ask(words);
        }}
      >
        <input
          class="kl-input kl-grow"
          aria-label="words to look for"
          placeholder="words; empty: kernels like this task's"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
        <Button action="memory-search" busy={busy} onClick={() => ask(words)}>
          Search
        </Button>
        {passed && (
          <Button
            action="memory-remember"
            busy={view.sending.value.has("remember")}
            title="Keep what this session has verified for later designs"
            onClick={() => view.send({ action: "remember" })}
          >
            Remember
          </Button>
        )}
      </form>
      {found?.note && <Empty>{found.note}</Empty>}
      {found?.hits.map((hit) => (
        <Hit key={hit.id} view={view} hit={hit} again={() => ask(words)} />
      ))}
    </section>
  );
}

function Hit({ view, hit, again }: { view: View; hit: MemoryHit; again: () => void }) {
  const say = (thumb: number, pinned: boolean) => {
    view.send({ action: "judge", id: hit.id, thumb, pinned }).then(again);
  };
  return (
    <Fold title={hit.name} aside={hit.why}>
      <p class="kl-dim">
        {scores(hit)} Learnt: as a first draft {learnt(hit.draft)}, to refine {learnt(hit.refine)}. From{" "}
        {hit.provenance}.{hit.stale && ` Stale: ${hit.stale}.`}
      </p>
      <div class="kl-row">
        <Button
          action="memory-like"
          pressed={hit.thumb > 0}
          title="Prefer it"
          onClick={() => say(hit.thumb > 0 ? 0 : 1, hit.pinned)}
        >
          Like
        </Button>
        <Button action="memory-hide" title="Never show it again" onClick={() => say(-1, hit.pinned)}>
          Hide
        </Button>
        <Button
          action="memory-pin"
          pressed={hit.pinned}
          title="Never drop it"
          onClick={() => say(hit.thumb, !hit.pinned)}
        >
          Pin
        </Button>
        <Button
          action="memory-forget"
          title="Delete it from the memory"
          onClick={() => view.send({ action: "forget", id: hit.id }).then(again)}
        >
          Forget
        </Button>
      </div>
      {hit.sketch && <TextBox text={hit.sketch} />}
    </Fold>
  );
}

function scores({ score, logic, shape, value }: MemoryHit): string {
  if (score === null) return "Found by its words.";
  const [a, b, c, all] = [logic, shape, value, score].map((one) => (one ?? 0).toFixed(2));
  return `Score ${all}: computation ${a}, shapes ${b}, value ${c}.`;
}

function learnt({ mean, uses }: { mean: number; uses: number }): string {
  return uses === 0 ? "not tried" : `${mean.toFixed(2)} of 1 in ${uses} ${uses === 1 ? "use" : "uses"}`;
}
