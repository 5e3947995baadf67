"""Predicting is a function of a policy's weights: eight threads give the bits of one, whatever mode it is in."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from oat.export.loading import load_runtime
from oat.policies import BasePredictor, Noise, context
from oat.policies.context import ContextConfig, TaskToken
from tests.export.exported import exported
from tests.policies.small import KINDS, observe, policy_of

EVERY_KIND = (*KINDS, "diffusion", "regression")
NOISE = Noise.of([1, 2, 3], [4, 5, 6])


def _actions(policy: BasePredictor) -> Tensor:
    return policy.predict_chunk(observe(3), None, NOISE).actions.nan_to_num(99)


def _all_equal(compute: Callable[[], Tensor], calls: int = 16) -> bool:
    expected = compute()
    with ThreadPoolExecutor(8) as threads:
        return all(threads.map(lambda _: torch.equal(compute(), expected), range(calls)))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_eight_threads_predict_the_bits_of_one(kind: str) -> None:
    policy = policy_of(kind)
    assert _all_equal(lambda: _actions(policy))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_policy_in_training_predicts_as_one_that_is_not(kind: str) -> None:
    """The first thread that ends must not bring dropout back while others still predict."""
    policy = policy_of(kind)
    policy.context.from_state.append(nn.Dropout(0.5))
    expected = _actions(policy.eval())
    policy.train()
    assert _all_equal(lambda: _actions(policy))
    assert torch.equal(_actions(policy), expected)
    assert policy.training


@pytest.mark.parametrize("kind", ["oat", "diffusion", "regression"])
def test_eight_threads_of_an_export_predict_the_bits_of_one(kind: str) -> None:
    runtime = load_runtime(exported(kind)[1])
    assert _all_equal(lambda: _actions(runtime))
    assert _all_equal(lambda: list(runtime.stream(observe(3), None, NOISE))[-1].actions)


def test_new_tasks_are_taken_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads see eight new tasks at the same time: every one of them gets the row of its own text."""

    def slowly_embed(name: str, texts: list[str]) -> Tensor:
        time.sleep(0.001)
        return torch.tensor([[float(text.removeprefix("task "))] for text in texts])

    monkeypatch.setattr(context, "embed_texts", slowly_embed)
    token = TaskToken(ContextConfig(text_encoder="any", text_dim=1), 4)
    tasks = [f"task {number % 8}" for number in range(80)]
    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(lambda task: int(token.find([task])), tasks))
    assert sorted(token.tasks) == sorted(set(tasks))
    assert [f"task {int(token.table[number, 0])}" for number in numbers] == tasks
