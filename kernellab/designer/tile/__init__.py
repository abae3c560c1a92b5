"""The choice of tiled axes and tile sizes for a launch."""
