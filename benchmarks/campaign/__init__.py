"""A campaign against the promises of SECURITY.md: many seeded trials of what must never lose, hang or deceive."""
