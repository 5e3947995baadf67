"""Stage 5 of the pipeline: the HTML page of `oat report`, and what `oat inspect` prints and draws."""
