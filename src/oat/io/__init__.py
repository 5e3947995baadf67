"""Files and processes: what everything else writes, reads and starts with."""
