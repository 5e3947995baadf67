"""Find the protocol of a benchmark, and the name of the protocol whose hash a record holds."""

from dataclasses import replace
from functools import cache

from oat.protocol import Protocol
from oat.sims import SIMULATORS, find_simulator

_LONGEST_CHUNK = 64  # of the horizons that the paper compares: variants that execute up to so many have names
_LONGEST_DELAY = 16


def find_protocol(
    simulator: str,
    execute: int | None = None,
    cameras: tuple[str, ...] | None = None,
    image_size: int | None = None,
    delay: int | None = None,
) -> Protocol:
    """Return the benchmark's protocol, or a variant of it, which has a hash of its own."""
    changes = {"execute": execute, "cameras": cameras, "image_size": image_size, "delay": delay}
    usual = find_simulator(simulator).protocol
    return replace(usual, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def known_protocol(hashed: str) -> Protocol | None:
    """Return the protocol with this hash: a benchmark's, or one of its variants; None where it is not known."""
    for simulator in SIMULATORS:
        found = _variants(find_simulator(simulator).protocol).get(hashed)
        if found is not None:
            return found
    return None


def protocol_name(hashed: str) -> str:
    """Return what a person calls the protocol with this hash, or the hash where no known benchmark has it."""
    found = known_protocol(hashed)
    if found is None:
        return f"protocol {hashed}"
    if any(found == find_simulator(simulator).protocol for simulator in SIMULATORS):
        return found.simulator
    late = f", {found.delay} steps late" if found.delay else ""
    return f"{found.simulator}, executing {found.execute}{late}"


@cache
def _variants(usual: Protocol) -> dict[str, Protocol]:
    """Return by hash a protocol, and those that execute more or less of each chunk, or with a delay."""
    variants = [
        replace(usual, execute=count, delay=delay)
        for count in range(1, _LONGEST_CHUNK + 1)
        for delay in range(min(count, _LONGEST_DELAY + 1))
    ]
    return {variant.hash: variant for variant in variants}
