/**
 * Signs as shapes: roles, authors and states can be told apart without colour. All are drawn on a 16 by 16 grid in the
 * colour of the text around them.
 */
import type { ComponentChildren } from "preact";
import type { TurnRow } from "./protocol";

function Sign({ children, label, kind }: { children: ComponentChildren; label?: string; kind: string }) {
  return (
    <svg
      class={`kl-sign kl-sign-${kind}`}
      viewBox="0 0 16 16"
      role={label ? "img" : undefined}
      aria-label={label}
      aria-hidden={label ? undefined : "true"}
    >
      {children}
    </svg>
  );
}

const line = { fill: "none", stroke: "currentColor", "stroke-width": "1.5", "stroke-linecap": "round" } as const;
const joined = { ...line, "stroke-linejoin": "round" } as const;

const ROLES: Record<string, ComponentChildren> = {
  // a pencil
  designer: <path {...joined} d="M3 13l.6-3L10.8 2.8a1.4 1.4 0 0 1 2 2L5.6 12.4zM9.3 4.3l2.2 2.2" />,
  // angle brackets
  coder: <path {...joined} d="M5.5 4L1.8 8l3.7 4M10.5 4l3.7 4-3.7 4" />,
  // a shield
  verifier: <path {...joined} d="M8 1.8l5 1.8v4c0 3.2-2.2 5.4-5 6.6-2.8-1.2-5-3.4-5-6.6v-4z" />,
  // a way that parts
  conductor: <path {...joined} d="M8 14V9.5L3.5 5M8 9.5L12.5 5M3.2 8V4.7h3.3M12.8 8V4.7H9.5" />,
  // bars
  analyst: <path {...line} d="M2.5 13.5h11M4.5 11V8M8 11V3.5M11.5 11V6" />,
};

export const RoleSign = ({ role }: { role: string }) => (
  <Sign kind="role" label={role}>
    {ROLES[role] ?? <rect {...joined} x="3.5" y="3.5" width="9" height="9" />}
  </Sign>
);

const AUTHORS: Record<string, ComponentChildren> = {
  // a ruler's square
  rules: <path {...joined} d="M3 3h10v10H3zM6 3v2.5M10 3v2.5" />,
  // a hexagon with a core
  model: (
    <>
      <path {...joined} d="M8 1.8l5.4 3.1v6.2L8 14.2l-5.4-3.1V4.9z" />
      <circle cx="8" cy="8" r="1.7" fill="currentColor" />
    </>
  ),
  // head and shoulders
  human: (
    <path
      {...joined}
      d="M8 7.5a2.6 2.6 0 1 0 0-5.2 2.6 2.6 0 0 0 0 5.2zM2.8 13.8c.5-3 2.5-4.3 5.2-4.3s4.7 1.3 5.2 4.3"
    />
  ),
};

export const AuthorSign = ({ author }: { author: string }) => (
  <Sign kind="author" label={`by ${author}`}>
    {AUTHORS[author] ?? <circle {...joined} cx="8" cy="8" r="5" />}
  </Sign>
);

const STATES: Record<string, ComponentChildren> = {
  passed: (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" />
      <path {...joined} stroke="var(--kl-bg)" stroke-width="2" d="M4.8 8.2l2.2 2.2 4.2-4.6" />
    </>
  ),
  failed: (
    <>
      <path fill="currentColor" d="M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z" />
      <path {...line} stroke="var(--kl-bg)" stroke-width="2" d="M5.5 5.5l5 5M10.5 5.5l-5 5" />
    </>
  ),
  running: (
    <>
      <circle {...line} cx="8" cy="8" r="6" opacity=".3" />
      <path class="kl-spin" {...line} stroke-width="2" d="M8 2a6 6 0 0 1 6 6" />
    </>
  ),
  waiting: (
    <>
      <path fill="currentColor" d="M8 .7L15.3 8 8 15.3.7 8z" />
      <path {...line} stroke="var(--kl-bg)" stroke-width="2" d="M8 4.6v4.2M8 11.4v.1" />
    </>
  ),
  done: <circle cx="8" cy="8" r="4" fill="currentColor" />,
  stopped: <path fill="currentColor" d="M4 4h8v8H4z" />,
  superseded: <path {...line} stroke-width="2" d="M4 8h8" />,
  skipped: <path {...line} stroke-width="2" d="M4 8h8" />,
  "not reached": <circle {...line} cx="8" cy="8" r="3.5" stroke-dasharray="1.5 2.5" />,
};

export const StateSign = ({ state }: { state: TurnRow["state"] | string }) => (
  <span class={`kl-state kl-is-${state.replace(" ", "-")}`}>
    <Sign kind="state" label={state}>
      {STATES[state] ?? STATES.done}
    </Sign>
  </span>
);

const ACTIONS: Record<string, ComponentChildren> = {
  step: <path fill="currentColor" d="M3 3l7 5-7 5zM11 3h2.2v10H11z" />,
  run: <path fill="currentColor" d="M4 2.5L13 8l-9 5.5z" />,
  pause: <path fill="currentColor" d="M3.5 3H7v10H3.5zM9 3h3.5v10H9z" />,
  fork: (
    <>
      <path {...joined} d="M4.5 5v6M4.5 9c0-2 7-1.5 7-4" />
      <circle {...line} cx="4.5" cy="3.3" r="1.7" />
      <circle {...line} cx="4.5" cy="12.7" r="1.7" />
      <circle {...line} cx="11.5" cy="3.3" r="1.7" />
    </>
  ),
  undo: <path {...joined} d="M6 3L2.5 6.5L6 10M2.5 6.5h7a4 3.5 0 0 1 0 7H6" />,
  stop: <path fill="currentColor" d="M3.5 3.5h9v9h-9z" />,
  note: <path {...joined} d="M2.5 3h11v7.5H8L5 13.5v-3H2.5z" />,
  help: <path {...line} stroke-width="1.7" d="M5.5 5.8a2.5 2.5 0 1 1 3.6 2.3c-.8.4-1.1.8-1.1 1.7M8 12.7v.1" />,
  copy: <path {...joined} d="M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3" />,
  follow: <path {...joined} d="M8 2v9M4 7.5L8 11.5l4-4M3 14h10" />,
  close: <path {...line} d="M4 4l8 8M12 4l-8 8" />,
  search: <path {...line} d="M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5L14 14" />,
};

export const ActionSign = ({ action }: { action: string }) => <Sign kind="action">{ACTIONS[action] ?? null}</Sign>;
