/** The question to the person: what is proposed, on which evidence, and every answer one click away. */
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { BriefForm } from "./brief";
import { type CardEvent, type CardState, canSend, edited, opened, step } from "./card-state";
import { capital } from "./format";
import { RoleSign } from "./icons";
import { Difference } from "./panels/difference";
import type { Act, Card } from "./protocol";
import { Area, Button } from "./ui";
import type { View } from "./view";

/** Where a proposal can go; the words are those of the magics and of `session.approve(to=...)`. */
const ELSEWHERE: Record<string, string> = {
  coder: "To Coder",
  designer: "To Designer",
  me: "To me",
  finish: "Finish",
};
const YES: Record<Card["kind"], string> = {
  route: "Approve",
  turn: "Go on",
  brief: "Keep as it is",
  error: "Try again",
  permission: "Allow once",
  cost: "Go on",
};

const stays = (role: string | null) => `You play the ${capital(role ?? "role")} from now on`;

/** Further answers to what an agent asks. */
const PERMISSIONS: Record<string, string> = { turn: "Allow for this turn", never: "Never" };

export function ConductorCard({ view }: { view: View }) {
  const { card, status } = view.state.head.value;
  const elsewhere = status === "waiting" && !card?.pending && !view.following.value;
  return (
    <>
      {card &&
        (card.pending ? <Question key={card.id} view={view} card={card} /> : <Proposed view={view} card={card} />)}
      {elsewhere && (
        <div class="kl-card kl-card-away">
          <span>The session waits for your answer at its newest turn.</span>
          <Button action="to-question" onClick={() => view.follow()}>
            Go to the question
          </Button>
        </div>
      )}
    </>
  );
}

/** What was proposed at a turn that is looked back at. */
function Proposed({ view, card }: { view: View; card: Card }) {
  return (
    <section class="kl-card kl-card-past" aria-label="the Conductor's proposal at this turn">
      <Heading card={card} />
      {card.suggestion && <blockquote class="kl-suggested">{card.suggestion}</blockquote>}
      <div class="kl-row">
        <Tune view={view} card={card} />
      </div>
    </section>
  );
}

/** What a session that ends has not tried: the rules' designs, measured against each other. */
function Tune({ view, card }: { view: View; card: Card }) {
  const { can, status } = view.state.head.value;
  const last = card.to === "finish" && (card.pending || (status === "finished" && view.following.value));
  if (!can.tune || !last) return null;
  return (
    <Button
      action="tune"
      busy={view.sending.value.has("tune")}
      title="The rules' designs race, at most 20 points of them, and the fastest is verified: about a minute, no tokens"
      onClick={() => void view.send({ action: "tune" })}
    >
      Measure the designs
    </Button>
  );
}

function Heading({ card }: { card: Card }) {
  return (
    <>
      <h3 class="kl-card-title">
        <RoleSign role={card.role} /> {card.title}
      </h3>
      {card.text && <p>{card.text}</p>}
      {card.kind === "permission" && card.evidence.length > 0 && (
        <Difference text={card.evidence.join("\n")} label="what the agent would do" />
      )}
      {card.kind !== "permission" && card.evidence.length > 0 && (
        <ul class="kl-evidence" aria-label="evidence">
          {card.evidence.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
    </>
  );
}

/** What was typed on each card, by view: it outlives updates, and an interlude in which another turn is looked at. */
const drafts = new WeakMap<View, Map<string, CardState>>();

function useCard(view: View, card: Card): [CardState, (event: CardEvent) => void] {
  let kept = drafts.get(view);
  if (!kept) {
    kept = new Map();
    drafts.set(view, kept);
  }
  const mine = kept;
  const [, draw] = useReducer((count: number, _: number) => count + 1, 0);
  const before = mine.get(card.id);
  const state = before ? step(before, { type: "card", card }) : opened(card);
  mine.set(card.id, state);
  // Undo asks the same question again: its answer of the first time does not stand any more
  const gone = useRef(false);
  useEffect(() => {
    gone.current = false;
    return () => {
      gone.current = true;
      if (mine.get(card.id)?.phase === "sent") mine.delete(card.id);
    };
  }, []);
  const dispatch = (event: CardEvent) => {
    // the head without the card may come before the kernel's word that the answer is taken
    if (gone.current && event.type === "sent") {
      mine.delete(card.id);
      return;
    }
    mine.set(card.id, step(mine.get(card.id) ?? opened(card), event));
    draw(0);
  };
  return [state, dispatch];
}

function Question({ view, card }: { view: View; card: Card }) {
  const [state, dispatch] = useCard(view, card);
  const free = canSend(state);

  const decide = async (act: Act) => {
    if (!free) return;
    dispatch({ type: "send" });
    const { error } = await view.send(act);
    dispatch(error ? { type: "refused", error } : { type: "sent" });
  };
  const [warned, warn] = useState(false);
  // what an agent asks for leaves the session's texts as they are
  const left = card.kind === "permission" ? [] : view.unapplied.value;
  const approve = async (to?: string) => {
    if (left.length && !warned) {
      warn(true);
      return;
    }
    await decide({
      action: "approve",
      card: card.id,
      ...(to ? { to } : {}),
      ...(card.editable ? { suggestion: state.draft } : {}),
    });
  };
  const work = card.to === "coder" || card.to === "designer";
  const others = Object.keys(ELSEWHERE).filter((to) => to !== card.to && (to !== "me" || work));
  const stuck = (card.kind === "error" || card.kind === "brief") && card.retry === false;
  const yours = card.kind === "route" && card.retry === false;
  // a person who is the Conductor chooses, as at the Conductor's proposal
  const routes = card.kind === "route" || (card.kind === "brief" && card.role === "conductor");
  const mine = (card.kind === "error" || card.kind === "cost") && (card.role === "designer" || card.role === "coder");
  const answers = (
    <>
      {mine && (
        <Button primary={stuck} action="to-me" busy={!free} title={stays(card.role)} onClick={() => approve("me")}>
          {card.role === "designer" ? "Write the sketch yourself" : "Write the code yourself"}
        </Button>
      )}
      {!stuck && (card.kind === "route" || !routes) && (
        <Button
          primary={card.kind !== "brief" && !yours}
          action="approve"
          busy={!free}
          title={
            card.kind === "route" && card.to ? `Send it to the ${capital(card.to)}, with these words (a)` : undefined
          }
          onClick={() => approve()}
        >
          {YES[card.kind] ?? "Approve"}
          {card.kind === "route" && card.to && card.to in ELSEWHERE ? `: ${capital(card.to)}` : ""}
        </Button>
      )}
      {routes &&
        others.map((to) => (
          <Button
            key={to}
            primary={yours && to === "me"}
            action={`to-${to}`}
            busy={!free}
            title={to === "me" ? `${stays(card.to)}; its field below gives it back` : undefined}
            onClick={() => approve(to)}
          >
            {ELSEWHERE[to]}
          </Button>
        ))}
      <Tune view={view} card={card} />
      {card.kind === "permission" &&
        Object.entries(PERMISSIONS).map(([to, words]) => (
          <Button key={to} action={`permit-${to}`} busy={!free} onClick={() => approve(to)}>
            {words}
          </Button>
        ))}
      <span class="kl-dim" role="status">
        {state.phase === "sending" ? "sending" : state.phase === "sent" ? "taken" : ""}
      </span>
      {state.phase === "refused" && <span class="kl-bad kl-lines">{state.error}</span>}
      {warned && left.length > 0 && (
        <span class="kl-bad kl-lines" role="alert">
          Your edit of the {left.join(" and of the ")} is not applied. Apply it in its panel, or press again to go on
          without it.
        </span>
      )}
    </>
  );

  return (
    <section class={`kl-card kl-card-${card.kind}`} aria-label="a question to you" data-card={card.id}>
      <Heading card={card} />
      {card.kind === "error" && <Remedy view={view} card={card} />}
      {card.editable && (
        <div class="kl-suggestion">
          <Area
            label="suggestion for the next role"
            value={state.draft}
            rows={2}
            placeholder="a suggestion for the next role"
            onInput={(text) => dispatch({ type: "draft", text })}
            onSubmit={() => card.kind === "route" && approve()}
          />
          {edited(state) && <span class="kl-dim">edited by you</span>}
          {yours ? <span class="kl-dim">{card.hint}</span> : <Unread view={view} role={card.to} />}
          {state.newer !== null && (
            <Button quiet action="take-newer" onClick={() => dispatch({ type: "take newer" })}>
              The proposal has changed: take the new suggestion
            </Button>
          )}
        </div>
      )}
      {!card.editable && card.hint && <p class="kl-dim">{card.hint}</p>}
      {(card.kind !== "brief" || routes) && <div class="kl-row kl-answers">{answers}</div>}
      {card.kind === "brief" && (
        <BriefForm view={view} card={card} free={free} decide={decide}>
          {!routes && answers}
        </BriefForm>
      )}
    </section>
  );
}

/** Says that no one will read the words, before one writes them; a proposal to finish can be sent to either role. */
function Unread({ view, role }: { view: View; role: string | null }) {
  const { roles } = view.state.head.value;
  const readers = role !== null && role in roles ? [role] : ["designer", "coder"];
  if (readers.some((reader) => roles[reader] !== "rules")) return null;
  const who = readers.length > 1 ? "Designer and Coder are" : `The ${capital(readers[0] ?? "")} is`;
  return (
    <span class="kl-dim">
      {who} played by rules, which read no words: give {readers.length > 1 ? "one" : "it"} to a model below
      {readers.length > 1 ? "." : ", or choose To me."}
    </span>
  );
}

/** What went wrong with the turn, and what to do about it; what the card's own text says already is not told again. */
function Remedy({ view, card }: { view: View; card: Card }) {
  const { error, remedy } = view.state.detail.value;
  return (
    <>
      {error && !card.text.includes(error) && <p class="kl-bad">{error}</p>}
      {remedy && !card.text.includes(remedy) && <p class="kl-remedy">{remedy}</p>}
    </>
  );
}
