"""Whole data sets as tokens: encoded once, in files that any program reads, and decoded again."""
