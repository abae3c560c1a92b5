/** Links to a turn: the page's own address with the session and the turn behind the hash. */

const KEY = "kernellab";

/** The address of this page that opens with the turn in sight. */
export function linkTo(session: string, turn: string, page: string = location.href): string {
  const url = new URL(page);
  // a token is a password, and a link is made to be given away
  url.searchParams.delete("token");
  url.hash = `${KEY}=${encodeURIComponent(session)}/${encodeURIComponent(turn)}`;
  return url.href;
}

/** The turn of `session` that the page's address names; null where it names none. */
export function linkedTurn(session: string, hash: string = location.hash): string | null {
  const found = new RegExp(`^#${KEY}=([^/]+)/([^/]+)$`).exec(hash);
  if (!found || decodeURIComponent(found[1] as string) !== session) return null;
  return decodeURIComponent(found[2] as string);
}
