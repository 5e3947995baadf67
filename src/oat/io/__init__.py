"""Files, processes and the command line: helpers that every other package uses."""
