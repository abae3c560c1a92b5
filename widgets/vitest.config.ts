import { defineConfig } from "vitest/config";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  // no test's time is its subject, and on a busy machine one takes several seconds
  test: {
    environment: "happy-dom",
    testTimeout: 60_000,
    hookTimeout: 60_000,
    include: ["tests/**/*.test.{ts,tsx}", "src/**/*.test.{ts,tsx}"],
  },
});
