"""Stage 5 of the pipeline: what a person looks at — tables, figures, pages."""
