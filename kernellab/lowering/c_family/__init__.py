"""What C++ and CUDA C++ have in common: a sketch's block as fused loop nests, and the text of one element.

A block is flattened into nests (:mod:`flatten`, :mod:`nests`), nests over one domain are fused (:mod:`fuse`), and an
element of a value is an expression of the operands' elements (:mod:`index`, :mod:`scalar`, :mod:`gather`). Each DSL
decides which loop is a thread and where a tile lies."""
