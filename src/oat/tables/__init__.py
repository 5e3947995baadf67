"""Tables as values, how they are written, and the one table of success that all stages fill in."""
