"""Run a policy on a robot: the fixed-rate loop, simulated robots, and trials that people judge."""
