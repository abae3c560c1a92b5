"""``python -m kernellab.cli``."""

import sys

from kernellab.cli.main import main

sys.exit(main())
