/** A text of the kernel as a file on the person's side. */
import type { Download } from "./protocol";

export function save({ name, text }: Download): void {
  saveAs(name, new Blob([text], { type: "text/plain" }));
}

export function saveAs(name: string, content: Blob): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  // the browser reads it after the click
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
