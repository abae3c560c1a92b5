/** The session's buttons: what happens next, who does it, and when it stops for the person. */
import { useState } from "preact/hooks";
import { capital } from "./format";
import { Area, Button, Choice } from "./ui";
import type { View } from "./view";

const POLICIES = ["none", "routing", "all", "tokens=10k", "minutes=1"];

export function Controls({ view }: { view: View }) {
  const head = view.state.head.value;
  const sending = view.sending.value;
  const [noting, setNoting] = useState(false);
  const at = view.at.value;
  return (
    <footer class="kl-foot">
      <div class="kl-row" role="toolbar" aria-label="session">
        <Button
          action="step"
          sign="step"
          title="One more turn (s)"
          disabled={!head.can.step}
          busy={sending.has("step")}
          onClick={() => view.send({ action: "step" })}
        >
          Step
        </Button>
        <Button
          action="run"
          sign="run"
          title="Run turns until the approval policy stops (r)"
          disabled={!head.can.run}
          busy={sending.has("run")}
          onClick={() => view.send({ action: "run" })}
        >
          Run
        </Button>
        <Button
          action="pause"
          sign="pause"
          title="Pause after the current turn (p)"
          disabled={!head.can.pause}
          busy={sending.has("pause")}
          onClick={() => view.send({ action: "pause" })}
        >
          Pause
        </Button>
        <Button
          action="fork"
          sign="fork"
          title="Fork from the selected turn; later turns are kept (f)"
          disabled={!head.can.fork || at === null}
          busy={sending.has("fork")}
          onClick={() => at !== null && view.send({ action: "fork", turn: at })}
        >
          Fork here
        </Button>
        <Button
          action="undo"
          sign="undo"
          title="Take your last approval, edit, redirection or fork back (u)"
          disabled={!head.can.undo}
          busy={sending.has("undo")}
          onClick={() => view.send({ action: "undo" })}
        >
          Undo
        </Button>
        <Button
          action="stop"
          sign="stop"
          title="End the session; everything so far is kept (Shift+X)"
          disabled={!head.can.stop}
          busy={sending.has("stop")}
          onClick={() => view.send({ action: "stop" })}
        >
          Stop
        </Button>
        <Button
          action="note"
          sign="note"
          pressed={noting}
          title="Leave a note for a role"
          onClick={() => setNoting(!noting)}
        >
          Note
        </Button>
        <div class="kl-row kl-roles">
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
    </footer>
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
  const [role, setRole] = useState(roles[0] ?? "coder");
  const [text, setText] = useState("");
  const send = async () => {
    if (text.trim() === "" || ignored) return;
    const { error } = await view.send({ action: "note", role, text });
    if (!error) close();
  };
  const ignored = view.state.head.value.roles[role] === "rules";
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
        placeholder="keep BLOCK at 128 or less, I will fuse this later"
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
