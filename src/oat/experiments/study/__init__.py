"""A study: its runs, their budget and their order."""
