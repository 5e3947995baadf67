"""A policy on a robot: the fixed-rate loop, simulated robots, trials that people judge."""
