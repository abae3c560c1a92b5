export { SketchPanel } from "./SketchPanel";
