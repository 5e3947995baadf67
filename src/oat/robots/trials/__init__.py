"""Trials on a robot, judged blind by a person."""
