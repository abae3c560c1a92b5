export { CodePanel } from "./CodePanel";
