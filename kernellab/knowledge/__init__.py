"""What is known in documents: the sketch language, DSLs, chips, patterns; cut to what a piece of work needs.

``Knowledge.load(target, workspace)`` is the way in. Each answer is a :class:`Passage`, which names its source.
"""

from kernellab.knowledge.loader import DslDocuments, Knowledge
from kernellab.knowledge.passage import Passage

__all__ = ["DslDocuments", "Knowledge", "Passage"]
