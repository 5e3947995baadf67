"""Everything that is registered is what `oat.interfaces` says it is."""

import pytest

from oat.interfaces import ActionTokenizer, ChunkPredictor, Simulator
from oat.sims import SIMULATORS, find_simulator
from oat.tokenizers import TOKENIZERS
from tests.policies.small import policy_of
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_tokenizer_is_one_to_its_callers(kind: str) -> None:
    tokenizer: ActionTokenizer = fitted(kind)  # what mypy checks: signatures
    assert isinstance(tokenizer, ActionTokenizer)  # and at run time: names
    assert (tokenizer.action_horizon, tokenizer.action_dim) == (HORIZON, DIM)
    tokens = tokenizer.encode(smooth_chunks(2))
    assert tokens.ids.shape[1] <= tokenizer.max_tokens
    assert int(tokens.ids.max()) < tokenizer.vocab_size


@pytest.mark.parametrize("kind", ["oat", "diffusion", "regression"])
def test_a_policy_predicts_chunks(kind: str) -> None:
    policy: ChunkPredictor = policy_of(kind)
    assert isinstance(policy, ChunkPredictor)


@pytest.mark.parametrize("name", SIMULATORS)
def test_a_simulator_says_all_that_is_asked_without_its_packages(name: str) -> None:
    simulator = find_simulator(name)
    assert issubclass(simulator, Simulator)
    assert simulator.name == name
    assert simulator.protocol.max_steps > 0
    assert simulator.action_names
