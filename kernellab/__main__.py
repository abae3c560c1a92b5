"""`python -m kernellab` is `kernellab`."""

from kernellab.cli import main

raise SystemExit(main())
