"""Policies of `oat` for LeRobot, which imports this package by its name and finds them by their types."""

from lerobot_policy_oat.configuration_oat import BCConfig, DPConfig, OATConfig, QueSTConfig

__all__ = ["BCConfig", "DPConfig", "OATConfig", "QueSTConfig"]
