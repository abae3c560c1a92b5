"""ATen operations as expressions over axes, with one handler each."""
