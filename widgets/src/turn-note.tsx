/** One line about the turn that is looked at: who, what came of it, why; its claims against the record. */
import { capital, count, duration } from "./format";
import { AuthorSign, RoleSign, StateSign } from "./icons";
import { linkTo } from "./place-link";
import type { Detail } from "./protocol";
import { Copy } from "./ui";
import type { View } from "./view";

export function TurnNote({ view }: { view: View }) {
  const row = view.row.value;
  const detail = view.state.detail.value;
  if (!row) return null;
  const known = detail.turn === row.id;
  return (
    <div class="kl-turn-line">
      <div class="kl-turn-head">
        <StateSign state={row.state} />
        <strong>Turn {row.number}</strong>
        <span>
          <RoleSign role={row.role} /> {capital(row.role)}
        </span>
        <span class="kl-dim">
          <AuthorSign author={row.author} /> {row.author}
        </span>
        {row.seconds > 0 && <span class="kl-dim">{duration(row.seconds)}</span>}
        {row.tokens > 0 && <span class="kl-dim">{count(row.tokens)} tokens</span>}
        <span class="kl-turn-words">{(known && detail.rationale) || row.note}</span>
        <Copy text={linkTo(view.state.head.value.id, row.id)} view={view} quiet>
          Link
        </Copy>
      </div>
      {known && <Claims claims={detail.claims} />}
      {known && detail.error && row.state !== "stopped" && !view.state.head.value.card?.pending && (
        <Fault detail={detail} />
      )}
    </div>
  );
}

/** A claim that the record contradicts is struck through, with the reason next to it. */
function Claims({ claims }: { claims: Detail["claims"] }) {
  if (claims.length === 0) return null;
  return (
    <ul class="kl-claims" aria-label="claims, checked against the record">
      {claims.map((claim) => (
        <li key={claim.text} class={claim.holds === false ? "kl-claim-wrong" : ""}>
          {claim.holds === false ? <s>{claim.text}</s> : claim.text}
          {claim.why && <span class="kl-dim"> {claim.why}</span>}
        </li>
      ))}
    </ul>
  );
}

function Fault({ detail }: { detail: Detail }) {
  return (
    <div class="kl-fault" role="alert">
      <strong>{detail.stopped}</strong> {detail.error}
      {detail.remedy && <span class="kl-remedy"> {detail.remedy}</span>}
    </div>
  );
}
