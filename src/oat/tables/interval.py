"""Estimates with their intervals, and the one place that says how numbers of tables are written."""

from dataclasses import dataclass

NOT_AVAILABLE = "—"
"""Text of a cell that has no value."""


@dataclass(frozen=True)
class Interval:
    """Hold an estimate with a 95 % interval."""

    estimate: float
    low: float
    high: float


def format_percent(share: float, spec: str = ".1f") -> str:
    """Write a share of 1 in percent, such as 0.25 as "25.0"; a negative one with a true minus sign."""
    return f"{100 * share:{spec}}".replace("-", "−")


def format_range(interval: Interval, spec: str = ".1f", scale: float = 1.0) -> str:
    """Write where the interval begins and where it ends."""
    return f"{scale * interval.low:{spec}} … {scale * interval.high:{spec}}"


def format_percent_range(interval: Interval, spec: str = ".0f") -> str:
    """Write the interval of a share of 1 in percent, such as "14 … 40"."""
    return format_range(interval, spec, scale=100)


def percent(interval: Interval) -> tuple[str, str]:
    """Write a rate and its interval as the two cells that tables have for them."""
    return f"{100 * interval.estimate:.1f}", format_percent_range(interval)


def count_nouns(number: int, noun: str) -> str:
    """Write a number and its noun, in the plural where there is not exactly one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
