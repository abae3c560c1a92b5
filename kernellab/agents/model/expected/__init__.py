"""What a sketch computes on its way to one wrong element, for who looks for the fault in the code made from it."""
