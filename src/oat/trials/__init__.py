"""Robots judged by people: trials in a random order, blind, one line each on a sheet."""
