/** What an agent was told, why, and what it answered: every exchange of the turn that is looked at. */
import { useEffect, useRef, useState } from "preact/hooks";
import { capital, count, duration } from "../format";
import type { ExchangeHead, ExchangeText, Partial, TurnRow } from "../protocol";
import { Button, Copy, Empty, Fold, TextBox, useAnswer } from "../ui";
import type { View } from "../view";

export function PromptPanel({ view }: { view: View }) {
  const { exchanges } = view.state.detail.value;
  const partial = view.state.partial.value;
  const [picked, setPicked] = useState<string | null>(null);
  const shown = exchanges.find((one) => one.id === picked) ?? exchanges[exchanges.length - 1];
  return (
    <div class="kl-prompt">
      <Writing view={view} />
      {exchanges.length === 0 && partial.turn === null && brokenOff(view) === null && (
        <Empty>No model was asked in this turn: rules need none, and a person's brief stands on the card above.</Empty>
      )}
      {exchanges.length > 1 && (
        <ol class="kl-exchanges" aria-label="exchanges with the model">
          {exchanges.map((one) => (
            <li key={one.id}>
              <button
                type="button"
                class={`kl-exchange${one.id === shown?.id ? " kl-current" : ""}`}
                aria-current={one.id === shown?.id}
                onClick={() => setPicked(one.id)}
              >
                <span>{capital(one.role)}</span>
                <span>{one.purpose}</span>
                <Mark head={one} />
                <span class="kl-dim kl-right">
                  {one.tokens} {duration(one.seconds)}
                </span>
              </button>
            </li>
          ))}
        </ol>
      )}
      {shown && <Exchange key={shown.id} view={view} head={shown} />}
    </div>
  );
}

/** The newest turn where it was broken off: it is next to the line, with what came of it. */
function brokenOff(view: View): TurnRow | null {
  const newest = view.rows.value.at(-1);
  const cut = newest?.state === "stopped" && newest.author === "model" && newest.id !== view.at.value;
  return cut ? newest : null;
}

/** What a model writes now, in the role `by` or in any, or the way to what it had written when it was stopped. */
export function Writing({ view, by }: { view: View; by?: string }) {
  const partial = view.state.partial.value;
  if (partial.turn !== null && (by ?? partial.role) === partial.role)
    return <Streaming view={view} partial={partial} />;
  const stopped = brokenOff(view);
  if (!stopped || (by ?? stopped.role) !== stopped.role) return null;
  return (
    <Empty>
      Turn {stopped.number} was stopped.{" "}
      <Button
        action="look-stopped"
        onClick={() => {
          view.look(stopped.id);
          view.open("prompt");
        }}
      >
        What was written until then
      </Button>
    </Empty>
  );
}

function Mark({ head }: { head: ExchangeHead }) {
  return (
    <>
      {head.recorded && (
        <span class="kl-label" data-tip="This answer is a recording; no model was asked now.">
          {head.recorded}
        </span>
      )}
      {head.error ? (
        <span class="kl-label kl-flag">failed</span>
      ) : (
        head.finish && head.finish !== "stop" && <span class="kl-label kl-flag">{head.finish}</span>
      )}
    </>
  );
}

function Exchange({ view, head }: { view: View; head: ExchangeHead }) {
  const asked = useAnswer(head.id, (signal) => view.request({ ask: "exchange", exchange: head.id }, { signal }));
  return (
    <article aria-label={`${head.role}: ${head.purpose}`}>
      <p class="kl-exchange-head">
        <strong>{capital(head.role)}</strong> {head.purpose}
        <span class="kl-dim">
          {head.model}
          {head.tokens && `, ${head.tokens}`}
          {head.seconds > 0 && `, ${duration(head.seconds)}`}
        </span>
        <Mark head={head} />
      </p>
      {head.error && <p class="kl-bad">{head.error}</p>}
      {asked?.error && <p class="kl-bad">{asked.error}</p>}
      {!asked && <Empty>asking the kernel</Empty>}
      {asked?.value && <Whole view={view} text={asked.value} failed={head.error !== ""} />}
    </article>
  );
}

function Whole({ view, text, failed }: { view: View; text: ExchangeText; failed: boolean }) {
  const prompt = text.messages.map((message) => message.content).join("\n\n");
  return (
    <>
      <Why sections={text.sections} open={!failed} />
      {text.messages.map((message, index) => (
        <Fold
          key={index}
          title={`${capital(message.role)} message`}
          aside={`${count(message.content.length)} characters`}
          open={index === text.messages.length - 1 && text.messages.length === 1}
        >
          <TextBox text={message.content} />
        </Fold>
      ))}
      {text.steps.map((step, index) => (
        <Fold
          key={`step ${index}`}
          title={capital(step.kind)}
          aside={`${step.title}${step.failed ? ", failed" : ""}${step.seconds >= 0.1 ? `, ${duration(step.seconds)}` : ""}`}
        >
          {step.text && <TextBox text={step.text} />}
          {step.result && <TextBox text={step.result} bad={step.failed} />}
        </Fold>
      ))}
      {text.reasoning && (
        <Fold title="Reasoning" aside={`${count(text.reasoning.length)} characters`}>
          <TextBox text={text.reasoning} />
        </Fold>
      )}
      <Fold
        title="Reply"
        open
        tools={
          <>
            <Copy view={view} text={prompt}>
              Copy the prompt
            </Copy>
            <Copy view={view} text={text.reply}>
              Copy the reply
            </Copy>
          </>
        }
      >
        {text.reply ? <TextBox text={text.reply} /> : <Empty>There was no reply.</Empty>}
      </Fold>
    </>
  );
}

/** Which part of the prompt came from where, and how much of it that is. */
function Why({ sections, open }: { sections: ExchangeText["sections"]; open: boolean }) {
  if (sections.length === 0) return null;
  const total = sections.reduce((sum, section) => sum + section.tokens, 0);
  const most = Math.max(1, ...sections.map((section) => section.tokens));
  return (
    <Fold title="Why this prompt" aside={`${sections.length} sections, ${count(total)} tokens`} open={open}>
      <table class="kl-table kl-why">
        <thead class="kl-unseen">
          <tr>
            <th scope="col">section</th>
            <th scope="col">tokens</th>
            <th scope="col">source and reason</th>
          </tr>
        </thead>
        <tbody>
          {sections.map((section) => (
            <tr key={`${section.name}${section.source}`}>
              <th scope="row">{section.name}</th>
              <td class="kl-why-tokens">
                <span class="kl-why-bar" style={{ width: `${(100 * section.tokens) / most}%` }} />
                <span>{count(section.tokens)}</span>
              </td>
              <td>
                {section.source && <code>{section.source}</code>} <span class="kl-dim">{section.note}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Fold>
  );
}

/** What a running model has written so far; the end stays in sight unless the person has scrolled up. */
function Streaming({ view, partial }: { view: View; partial: Partial }) {
  return (
    <section class="kl-streaming" aria-label={`what the ${partial.role} has written`}>
      {partial.state === "waits" ? (
        <p role="status">
          <strong>{capital(partial.role)}</strong> waits. {partial.text}
        </p>
      ) : (
        <Written partial={partial} cut={partial.state === "cut off" || view.link.value === "gone"} />
      )}
    </section>
  );
}

function Written({ partial, cut }: { partial: Partial; cut: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  const stick = useRef(true);
  useEffect(() => {
    if (box.current && stick.current) box.current.scrollTop = box.current.scrollHeight;
  }, [partial.text]);
  return (
    <>
      <p class="kl-exchange-head">
        <strong>{capital(partial.role)}</strong> {cut ? "was cut off here" : "is writing"}
        <span class="kl-dim">
          {count(partial.length)} characters{cut ? "" : " so far"}
        </span>
      </p>
      <pre
        ref={box}
        class="kl-text"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and must do so by keyboard too
        tabIndex={0}
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          stick.current = scrollHeight - scrollTop - clientHeight < 24;
        }}
      >
        {partial.length > partial.text.length ? "\u2026" : ""}
        {partial.text}
      </pre>
    </>
  );
}
