"""The runtime in exported packages: it needs torch and the DSL's runtime, not kernellab."""
