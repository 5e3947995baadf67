"""Count what a server has done, and write it in the text format of Prometheus."""

from collections import Counter
from dataclasses import dataclass, field

# Spaced evenly on a logarithmic scale, around the 10 to 100 ms of a robot's control step.
_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)


@dataclass
class Metrics:
    """Count requests, batches and tokens since a server started."""

    connections: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    """By outcome: answered, refused (the client's mistake) or failed (ours)."""
    batches: int = 0
    tokens: int = 0
    """Tokens generated, or denoising steps taken, over all answered requests."""
    deadline_misses: int = 0
    seconds: float = 0.0
    _within: Counter[int] = field(default_factory=Counter)

    def answered(self, seconds: float, tokens: int, late: bool) -> None:
        """Count a request that was answered so many seconds after its arrival."""
        self.requests["answered"] += 1
        self.seconds += seconds
        self.tokens += tokens
        self.deadline_misses += late
        for bucket in _BUCKETS_MS:  # Prometheus' buckets are cumulative
            self._within[bucket] += 1e3 * seconds <= bucket

    def text(self) -> str:
        """Return all counts as Prometheus reads them from /metrics."""
        lines = [
            *_head("oat_requests_total", "counter", "Requests by outcome."),
            *(f'oat_requests_total{{outcome="{name}"}} {self.requests[name]}' for name in _OUTCOMES),
            *_head("oat_request_seconds", "histogram", "Time from a request's arrival to its reply."),
            *(f'oat_request_seconds_bucket{{le="{b / 1e3:g}"}} {self._within[b]}' for b in _BUCKETS_MS),
            f'oat_request_seconds_bucket{{le="+Inf"}} {self.requests["answered"]}',
            f"oat_request_seconds_sum {self.seconds:.6f}",
            f"oat_request_seconds_count {self.requests['answered']}",
        ]
        for name, kind, meaning, value in (
            ("oat_batches_total", "counter", "Batches that requests were answered in.", self.batches),
            ("oat_tokens_total", "counter", "Tokens generated or denoising steps taken.", self.tokens),
            ("oat_deadline_misses_total", "counter", "Replies after the deadline.", self.deadline_misses),
            ("oat_connections", "gauge", "Clients connected now.", self.connections),
        ):
            lines += [*_head(name, kind, meaning), f"{name} {value}"]
        return "\n".join(lines) + "\n"


_OUTCOMES = ("answered", "refused", "failed")


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"
