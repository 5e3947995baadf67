"""Stage 1 of the pipeline: demonstrations on disk → action chunks in model space."""
