"""Operations in terms of others that the rules support, where torch's own tables leave them whole.

Each function is traced instead of the operation of its name, so that an unsupported family becomes a graph of supported
families. ``NotImplemented`` leaves an operation whole. There is a module for each family, whose table says which
operations its functions are traced for; :mod:`kernellab.capture.decompositions.tables` joins them.
"""
