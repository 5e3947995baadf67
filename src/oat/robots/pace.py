"""Configure how chunks become actions at a fixed rate; importing this is cheap."""

from dataclasses import dataclass

from oat.errors import InvalidOption


@dataclass(frozen=True)
class Pace:
    """Configure the rate of the actions, and when one chunk takes over from another."""

    fps: float = 20.0
    """Actions per second."""
    execute: int = 16
    """Actions of a chunk after which the next one is due."""
    ahead: int = 4
    """How many actions before that it is asked for; with 0 the robot waits for it."""
    blend: int = 3
    """Actions over which a chunk takes over from the one before."""
    max_age: float = 1.0
    """Seconds; a chunk whose observation is older when it arrives is not executed."""

    def __post_init__(self) -> None:
        if not min(self.fps, self.max_age) > 0 or self.execute < 1:
            raise InvalidOption(
                f"fps, max_age and execute must be positive, got {self.fps:g}, {self.max_age:g} and {self.execute}"
            )
        if not 0 <= self.ahead <= self.execute or self.blend < 0:
            raise InvalidOption(f"ahead must be 0…{self.execute} and blend at least 0, got {self.ahead}, {self.blend}")
