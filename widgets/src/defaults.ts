/** What each trait holds before the kernel has said anything; also the list of the fields that are known here. */
import { filling } from "./fill";
import { EMPTY, PROTOCOL, type Traits } from "./protocol";

export const NOTHING: Traits = {
  ...EMPTY,
  head: { ...EMPTY.head, protocol: PROTOCOL, status: "paused", approval: "none" },
  roofline: { ...EMPTY.roofline, against: "eager" },
  texts: { ...EMPTY.texts, language: "text" },
};

export const fill = filling(NOTHING);
