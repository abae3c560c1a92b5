"""Suites of tasks: the built-in one, checkouts of other projects' suites, and any folder of Task files.

A suite is read in place, not copied: other projects' suites are read from a checkout that the user names. Each suite
has one reader in the table of :mod:`kernellab.bench.suites.load`."""

from kernellab.bench.suites.folder import BUILTIN
from kernellab.bench.suites.load import load_suite
from kernellab.bench.suites.record import SuiteTask

__all__ = ["BUILTIN", "SuiteTask", "load_suite"]
