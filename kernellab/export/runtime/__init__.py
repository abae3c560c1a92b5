"""What goes along with a kernel: it needs torch and the DSL's runtime, never kernellab."""
