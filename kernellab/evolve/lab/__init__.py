"""The search lab: replays policies on closed spaces of kernels that were measured once, point by point.

Every proposal of a replay is a point of its space, so that a policy's result can be compared with the best in the
space, and the effect of a changed knob is visible in seconds.
"""
