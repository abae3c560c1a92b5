"""ATen operations as expressions over axes, one handler each."""
