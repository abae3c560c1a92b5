"""The Unified Sketch language: parse, print, check, run, cost, gate. Each service is a package of that name."""
