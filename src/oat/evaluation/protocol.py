"""Find the protocol of a benchmark, and the name of the protocol whose hash a record holds."""

from dataclasses import replace
from functools import cache

from oat.protocol import Protocol
from oat.sims import SIMULATORS, find_simulator

_LONGEST_CHUNK = 64  # of the horizons that the paper compares: variants that execute up to so many have names


def find_protocol(
    simulator: str,
    execute: int | None = None,
    cameras: tuple[str, ...] | None = None,
    image_size: int | None = None,
) -> Protocol:
    """Return the benchmark's protocol, or a variant of it, which has a hash of its own."""
    changes = {"execute": execute, "cameras": cameras, "image_size": image_size}
    usual = find_simulator(simulator).protocol
    return replace(usual, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def protocol_name(hashed: str) -> str:
    """Return what a person calls the protocol with this hash, or the hash where no known benchmark has it."""
    for simulator in SIMULATORS:
        found = _names(find_simulator(simulator).protocol).get(hashed)
        if found is not None:
            return found
    return f"protocol {hashed}"


@cache
def _names(usual: Protocol) -> dict[str, str]:
    """Return names by hash: of a protocol, and of those that execute more or less of each chunk."""
    variants = {
        replace(usual, execute=count).hash: f"{usual.simulator}, executing {count}"
        for count in range(1, _LONGEST_CHUNK + 1)
    }
    return variants | {usual.hash: usual.simulator}
