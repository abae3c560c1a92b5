/** The line under the header: what a person must hear, until it is dismissed. */
import { ActionSign } from "./icons";
import type { Link, Speech } from "./link";

interface NoticesProps {
  view: Pick<Link<Speech>, "notice" | "link" | "sending" | "dismiss">;
  /** what the kernel has to say of the last decision */
  message: string;
}

export function Notices({ view, message }: NoticesProps) {
  const notice = view.notice.value;
  const lines: { text: string; tone: string; dismiss?: () => void }[] = [];
  if (notice) lines.push({ ...notice, dismiss: () => view.dismiss() });
  if (message && message !== notice?.text) lines.push({ text: message, tone: "error" });
  // a question that waits moves nothing: its panel and the status say so
  if (view.link.value === "busy" && view.sending.value.size > 0) {
    lines.push({ text: "Kernel busy: your action is applied when it is done with its work.", tone: "info" });
  }
  return (
    <div class="kl-notices" aria-live="polite">
      {lines.map((line) => (
        <div key={line.text} class={`kl-notice kl-notice-${line.tone}`}>
          <span>{line.text}</span>
          {line.dismiss && (
            <button type="button" class="kl-close" aria-label="dismiss" onClick={line.dismiss}>
              <ActionSign action="close" />
            </button>
          )}
        </div>
      ))}
    </div>
  );
}
