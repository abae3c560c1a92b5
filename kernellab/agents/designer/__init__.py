"""The rules Designer: from a captured graph to sketches, by rules about graphs and shapes."""

from kernellab.agents.designer.rules import RulesDesigner

__all__ = ["RulesDesigner"]
