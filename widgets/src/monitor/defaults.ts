/** What each trait holds before the kernel has said anything. */
import { filling } from "../fill";
import { EMPTY, PROTOCOL, type Traits } from "./protocol";

export const NOTHING: Traits = { ...EMPTY, head: { ...EMPTY.head, protocol: PROTOCOL } };

export const fill = filling(NOTHING);
