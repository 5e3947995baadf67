"""Run trials on a robot that a person judges without knowing which method acts."""
