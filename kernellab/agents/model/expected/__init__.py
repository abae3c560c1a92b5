"""The sketch's values on the way to one wrong element, to locate the fault in the code made from it."""
