"""Stage 4 of the pipeline: policies in simulators → records of episodes → statistics."""
