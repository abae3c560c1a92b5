/** A person holds a role: the brief that a model would get, and a form for the answer. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { toEditor } from "./keys";
import type { Act, Brief, Card } from "./protocol";
import { Area, Button, Copy, Empty, Fold, TextBox, useAnswer } from "./ui";
import type { Panel, View } from "./view";

const EXPECTS: Record<Brief["expects"], { words: string; panel: Panel | null }> = {
  sketch: { words: "a sketch", panel: "sketch" },
  code: { words: "the kernel's file or files", panel: "code" },
  route: { words: "where to go next, and a suggestion", panel: null },
};

interface Props {
  view: View;
  card: Card;
  free: boolean;
  decide: (act: Act) => void;
  /** the card's other answers, next to "Answer" */
  children: ComponentChildren;
}

export function BriefForm({ view, card, free, decide, children }: Props) {
  const [text, setText] = useState("");
  const asked = useAnswer(card.id, (signal) => view.request({ ask: "brief" }, { signal }));
  const brief = asked?.value;
  const expects = brief ? EXPECTS[brief.expects] : undefined;
  const form = useRef<HTMLDivElement>(null);
  const write = (panel: Panel) => {
    view.open(panel);
    const root = form.current?.closest<HTMLElement>(".kl");
    // an editor that is opened for the first time is there after the next picture
    if (root) requestAnimationFrame(() => setTimeout(() => toEditor(root)));
  };
  const answer = () => text.trim() !== "" && decide({ action: "answer", card: card.id, text });
  return (
    <div class="kl-brief" ref={form}>
      <div class="kl-row">
        {expects?.panel && (
          <Button local action="answer-in-panel" onClick={() => write(expects.panel as Panel)}>
            Write it in the {expects.panel === "sketch" ? "Sketch" : "Code"} panel
          </Button>
        )}
        {brief && (
          <Copy view={view} text={brief.text}>
            Copy the prompt
          </Copy>
        )}
        {brief && (
          <span class="kl-dim">or let a model of your own answer it: copy the prompt, paste its reply below</span>
        )}
      </div>
      <Fold title="The brief, as a model would get it" aside={brief ? `${brief.text.length} characters` : undefined}>
        {brief ? <TextBox text={brief.text} /> : <Empty>{asked?.error ?? "asking the kernel"}</Empty>}
      </Fold>
      <Area
        label={`your answer as the ${card.role}`}
        value={text}
        rows={3}
        code
        placeholder={`paste the reply here: ${expects?.words ?? "an answer"}`}
        onInput={setText}
        onSubmit={answer}
      />
      <div class="kl-row kl-answers">
        <Button primary action="answer" busy={!free} disabled={text.trim() === ""} onClick={answer}>
          Answer
        </Button>
        {children}
      </div>
    </div>
  );
}
