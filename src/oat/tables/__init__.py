"""Tables as values, and how they are printed."""
