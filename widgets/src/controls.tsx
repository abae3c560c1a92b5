/** The session's buttons: what happens next, who does it, and when it stops for the person. */
import { useState } from "preact/hooks";
import { capital } from "./format";
import { Area, Button, Choice } from "./ui";
import type { View } from "./view";

const POLICIES = ["none", "routing", "all", "tokens=10k", "minutes=1"];

interface Action {
  action: "step" | "run" | "pause" | "fork" | "undo" | "stop";
  word: string;
  title: string;
}

const ACTIONS: Action[] = [
  { action: "step", word: "Step", title: "One more turn (s); an open question is answered on its card" },
  { action: "run", word: "Run", title: "Run turns until the approval policy stops (r)" },
  { action: "pause", word: "Pause", title: "Pause after the current turn (p)" },
  { action: "fork", word: "Fork here", title: "Fork from the selected turn; later turns are kept (f)" },
  { action: "undo", word: "Undo", title: "Take your last approval, edit, pin, redirection or fork back (u)" },
  { action: "stop", word: "Stop", title: "End the session; everything so far is kept (Shift+X)" },
];

/** The turn that is looked at becomes the newest of its line, so what comes after it is followed. */
async function fork(view: View, turn: string): Promise<void> {
  const { error } = await view.send({ action: "fork", turn });
  if (!error && view.at.peek() === turn) view.follow();
}

export function Controls({ view }: { view: View }) {
  const head = view.state.head.value;
  const sending = view.sending.value;
  const [noting, setNoting] = useState(false);
  // where there is little room they are shown on a word
  const [roles, setRoles] = useState(false);
  const at = view.at.value;
  return (
    <div class="kl-foot">
      <div class="kl-row" role="toolbar" aria-label="session">
        {ACTIONS.map(({ action, word, title }) => (
          <Button
            key={action}
            action={action}
            sign={action}
            label={word}
            title={title}
            disabled={!head.can[action] || (action === "fork" && at === null)}
            busy={sending.has(action)}
            onClick={() => (action === "fork" ? void fork(view, at ?? "") : view.send({ action }))}
          >
            <span class="kl-word">{word}</span>
          </Button>
        ))}
        <Button
          action="note"
          sign="note"
          pressed={noting}
          label="Note"
          title="Leave a note for a role"
          onClick={() => setNoting(!noting)}
        >
          <span class="kl-word">Note</span>
        </Button>
        <span class="kl-roles-button">
          <Button
            quiet
            local
            action="roles"
            pressed={roles}
            title="Who plays which role, and when the session stops for you"
            onClick={() => setRoles(!roles)}
          >
            Roles
          </Button>
        </span>
        <div class={`kl-row kl-roles${roles ? " kl-roles-open" : ""}`}>
          <Choice
            label="approve"
            value={head.approval}
            options={POLICIES}
            title="When the session stops for you: never, at each Conductor's proposal, after each turn, or before a turn that is expected to cost more"
            onChange={(value) => view.send({ action: "approval", value })}
          />
          {inOrder(head.roles).map(([role, value]) => (
            <Choice
              key={role}
              label={capital(role)}
              value={value}
              options={head.role_choices[role] ?? [value]}
              title={`Who plays the ${capital(role)} from the next turn on`}
              onChange={(choice) => view.send({ action: "role", role, value: choice })}
            />
          ))}
        </div>
      </div>
      {noting && (
        <NoteForm view={view} roles={inOrder(head.roles).map(([role]) => role)} close={() => setNoting(false)} />
      )}
    </div>
  );
}

const ORDER = ["designer", "coder", "conductor", "analyst"];

/** In the order of their work; a role that is not known here comes last. */
function inOrder(roles: Record<string, string>): [string, string][] {
  const place = (role: string) => (ORDER.indexOf(role) + ORDER.length + 1) % (ORDER.length + 1);
  return Object.entries(roles).sort(([a], [b]) => place(a) - place(b));
}

/** What a role was told to keep in mind, each with a button that takes it back. */
function Notes({ view }: { view: View }) {
  const notes = Object.entries(view.state.head.value.notes).flatMap(([role, texts]) =>
    texts.map((text) => ({ role, text })),
  );
  if (notes.length === 0) return null;
  return (
    <ul class="kl-notes" aria-label="notes">
      {notes.map(({ role, text }) => (
        <li key={`${role}:${text}`} class="kl-row">
          <span class="kl-dim">{capital(role)}</span>
          <span class="kl-grow">{text}</span>
          <Button quiet action="unnote" onClick={() => view.send({ action: "unnote", role, text })}>
            Delete
          </Button>
        </li>
      ))}
    </ul>
  );
}

function NoteForm({ view, roles, close }: { view: View; roles: string[]; close: () => void }) {
  // rules read no notes
  const byRules = (role: string) => view.state.head.value.roles[role] === "rules";
  const [role, setRole] = useState((roles.find((one) => !byRules(one)) ?? roles[0]) || "coder");
  const [text, setText] = useState("");
  const send = async () => {
    if (text.trim() === "" || ignored) return;
    const { error } = await view.send({ action: "note", role, text });
    if (!error) close();
  };
  const ignored = byRules(role);
  return (
    <div class="kl-note-form">
      <Notes view={view} />
      <Choice label="to the" value={role} options={roles} onChange={setRole} />
      {ignored && (
        <span class="kl-dim" role="status">
          The {capital(role)} is played by rules, which read no notes: give the role to a model first.
        </span>
      )}
      <Area
        label="note"
        value={text}
        onInput={setText}
        onSubmit={send}
        placeholder={ignored ? "" : "keep BLOCK at 128 or less, I will fuse this later"}
      />
      <Button
        primary
        action="send-note"
        onClick={send}
        disabled={text.trim() === "" || ignored}
        busy={view.sending.value.has("note")}
      >
        Send
      </Button>
    </div>
  );
}
