"""Configure what to serve; importing this is cheap, so that the command line can show its help at once."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

import tyro

from oat.errors import InvalidOption
from oat.evaluation.config import DecodingName


@dataclass(frozen=True)
class ServeConfig:
    """Configure a server: its policy, the address it listens at, and how it decodes."""

    policy: tyro.conf.Positional[Path]
    """The policy's checkpoint or run, or what oat export wrote."""
    host: str = "127.0.0.1"
    """Address to listen at; any but this machine's own needs a key."""
    port: int = 8000
    """Port to listen at; 0 takes a free one."""
    api_key_file: Path | None = None
    """A file that holds the key which clients must send."""
    anyone: bool = False
    """Listen to other machines without a key."""
    deadline_ms: float | None = None
    """Generate as many tokens as this time after a request's arrival allows; without it, all."""
    num_tokens: int | None = None
    """Generate at most this many tokens."""
    num_actions: int | None = None
    """Send only the chunk's first actions."""
    decoding: DecodingName = "usual"
    """How tokens become a chunk: as the policy was trained for, without its remainder, or as in the paper, sampled and
    without."""
    temperature: float | tuple[float, ...] | None = None
    """Temperature of token sampling, or those of the first token, the second, …, of which the last holds for the rest;
    by default that which the policy was trained for, if it samples at all."""
    top_k: int | tuple[int, ...] = 10
    """Sample among this many most likely tokens, 0 for all; for all tokens, or for the first, the second, …; a number
    other than 10 samples."""
    greedy: bool = False
    """Take the most likely token always, whatever the policy was trained for."""
    remainder: bool = False
    """Insist on the remainder, which makes the tokens' choice exact: refused if the policy was trained without one."""
    denoising_steps: int | None = None
    """Denoising steps of a diffusion policy; 10 by default."""
    samples: int = 1
    """N: draw so many chunks and send one of them; more than one are sampled, whatever the policy was trained for."""
    choose: str = "medoid"
    """Which of several samples is sent: likelihood, the most likely; medoid, the one nearest to the others; coherent,
    the one nearest to the rest of the client's previous chunk; contrast, that and unlike a weaker policy; guided, the
    medoid of samples that are compared with the previous chunk while their tokens are chosen."""
    weaker: Path | None = None
    """The weaker policy of --choose contrast, a checkpoint or run; by default the same one after its first step."""
    binary: tuple[int, ...] = ()
    """Dimensions of an action with two values, such as a gripper's, which --choose medoid decides by majority."""
    commit: int = 0
    """Choose among samples whose first so many actions agree with the client's previous chunk."""
    execute: int | None = None
    """Actions of each chunk that clients execute: what choosing and stopping look at; the rest of a chunk is then
    remembered for clients that do not send it."""
    stop: str | None = None
    """When a chunk has enough tokens: residual=0.02 or value=0.001 with --head, in action units (both are
    experimental), or fixed=4."""
    head: Path | None = None
    """The stopping head of residual and value, and of percentages, which oat calibrate makes."""
    seed: int = 0
    """Seed of the sampling, for clients that do not send their own."""
    rename: tuple[str, ...] = ()
    """Observations that clients call otherwise, such as observation/image=observation.images.front."""
    compiled: bool = False
    """Run a checkpoint through PyTorch's compiler."""
    threads: int = 1
    """Threads of the computation."""
    max_batch: int = 8
    """Requests that are answered together when they coincide."""
    max_clients: int = 32
    """Clients at a time; further ones are turned away."""
    max_message_mb: float | None = None
    """Megabytes of a message, above which the connection ends; by default four observations' size."""
    client_timeout: float = 20
    """Seconds after which a client that does not answer pings is given up."""

    def __post_init__(self) -> None:
        if self.samples < 1 or (self.execute is not None and self.execute < 1):
            raise InvalidOption(f"samples and execute must be at least 1, got {self.samples} and {self.execute}")
        if self.head is not None and self.execute is None:
            raise InvalidOption("a stopping head is for one number of executed actions: --execute says the clients'")
        if min(self.threads, self.max_batch, self.max_clients) < 1 or not 0 <= self.port < 2**16:
            raise InvalidOption("threads, max_batch and max_clients must be at least 1, and the port in 0…65535")
        given = (self.client_timeout, self.max_message_mb, self.deadline_ms)
        if not all(0 < number < float("inf") for number in given if number is not None):
            raise InvalidOption("max_message_mb, client_timeout and deadline_ms must be positive and finite")
        if not self.is_local and self.api_key_file is None and not self.anyone:
            raise InvalidOption(f"{self.host} can be reached by others: give --api-key-file, or --anyone to serve all")
        if any(pair.count("=") != 1 for pair in self.rename):
            raise InvalidOption(f"rename takes CLIENT_NAME=POLICY_NAME, got {' '.join(self.rename)}")

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name that could be anyone's

    @property
    def names(self) -> dict[str, str]:
        """Return the policy's names of observations by the clients' names."""
        return dict(pair.split("=") for pair in self.rename)

    def read_key(self) -> bytes | None:
        """Return the key that clients must send, or None where anyone may connect."""
        return None if self.api_key_file is None else read_key(self.api_key_file)


def read_key(file: Path) -> bytes:
    """Return the key in a file, which a server and its clients share."""
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise InvalidOption(f"cannot read the key in {file}: {error.strerror}") from error
    if not key:
        raise InvalidOption(f"{file} holds no key")
    return key
