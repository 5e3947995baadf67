"""Processes that step environments: on this machine or on a Ray cluster."""
