"""All kinds of trials by name, with what they are made against and how many are enough."""

from benchmarks.campaign.commands import COMMANDS
from benchmarks.campaign.files import mangle_checkpoint, mangle_data, mangle_encoded
from benchmarks.campaign.interruptions import fill_disk, interrupt, kill
from benchmarks.campaign.races import race
from benchmarks.campaign.servers import connect_badly, send_frames, soak
from benchmarks.campaign.tokens import decode_random
from benchmarks.campaign.trial import Kind
from benchmarks.campaign.workshop import EXPORTED, POLICY_KINDS, SETS, TOKEN_POLICIES, TOKENIZER_KINDS

_TOKENIZERS = tuple(f"tokenizer-{kind}" for kind in TOKENIZER_KINDS)
_ENCODED = tuple(f"encoded-{kind}" for kind in TOKENIZER_KINDS)
_POLICIES = tuple(f"policy-{kind}" for kind in POLICY_KINDS)
_EXPORTS = tuple(f"export-{kind}" for kind in EXPORTED)
_RUNTIMES = (*(f"eager-{kind}" for kind in POLICY_KINDS), *(f"exported-{kind}" for kind in EXPORTED))
_TOKEN_RUNTIMES = tuple(f"{sort}-{kind}" for sort in ("eager", "exported") for kind in TOKEN_POLICIES)
_SERVED = ("eager-oat", "exported-oat")

KINDS: dict[str, Kind] = {
    "kills": Kind(kill, tuple(COMMANDS), 250, 8),
    "signals": Kind(interrupt, tuple(COMMANDS), 100),
    "disks": Kind(fill_disk, tuple(COMMANDS), 100),
    "data": Kind(mangle_data, SETS, 3_000, 3),
    "checkpoints": Kind(mangle_checkpoint, (*_TOKENIZERS, *_POLICIES, *_EXPORTS), 2_000, 3),
    "encoded": Kind(mangle_encoded, _ENCODED, 1_000),
    "tokens": Kind(decode_random, (*_TOKENIZERS, *_TOKEN_RUNTIMES, "eager-fast"), 11_000_000, 3),
    "frames": Kind(send_frames, _SERVED, 20_000),
    "connections": Kind(connect_badly, _SERVED, 4_000, 0.5),
    "races": Kind(race, (*_TOKENIZERS, *_RUNTIMES), 8_000, 0.5),
    "soak": Kind(soak, _SERVED, 20_000, 0.5),
}
