"""The options that only a command of the shell has: one model for each command that has some.

A command names its model and gets one object of it (:mod:`kernellab.cli.parameters`); flags, ``--help`` and the
reference page are derived from the fields. What a command shares with a magic or a file is in the other modules of
:mod:`kernellab.options`; a field of those with another default is :func:`kernellab.options.commands.base.alike`.
"""
