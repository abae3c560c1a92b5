"""The search lab: policies replayed on closed spaces of kernels that were measured once, point by point.

Every proposal of a replay is a point of its space, so that what a policy finds can be compared with the best that there
is, and a change of one knob is seen in a second or two.
"""
