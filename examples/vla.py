"""Let a language model act: OAT's tokens become new words of a Hugging Face causal language model.

    python examples/vla.py                          # fits a small tokenizer first
    python examples/vla.py --tokenizer DIRECTORY    # takes one that `save_pretrained` wrote, or from the Hub

The model is tiny and knows nothing, the demonstrations are made up: "reach left" and "reach right". With a real model,
its own text tokenizer and images before the prompt, the steps are the same.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from torch import Tensor
from transformers import AutoProcessor, LlamaConfig, LlamaForCausalLM

from oat.huggingface.processor import OATProcessor
from oat.huggingface.vocabulary import ActionTokensOnly, ActionVocabulary

TASKS = {"reach left": -1.0, "reach right": 1.0}
PROMPT_LENGTH = max(map(len, TASKS))
WORDS = 257  # one word for every byte, and the end
EOS = 256

Model = Any  # transformers' annotations do not know that its models can generate


@dataclass(frozen=True)
class Options:
    """Configure the tokenizer, the training and the generation of the example."""

    tokenizer: str | None = None
    """A processor's directory or its name on the Hub; by default a small one is fitted."""
    steps: int = 100
    """Training steps of the language model."""
    num_tokens: int = 4
    """Action tokens to generate for a chunk."""


def demonstrate(task: str, count: int, horizon: int, dim: int, seed: int) -> np.ndarray:
    """Return smooth reaches to the task's side, none quite like another."""
    generator = np.random.default_rng(seed)
    time = np.linspace(0, 1, horizon)[None, :, None]
    goals = TASKS[task] + 0.1 * generator.normal(size=(count, 1, dim))
    return goals * (3 * time**2 - 2 * time**3)


def fit_tokenizer() -> OATProcessor:
    """Fit a small tokenizer to demonstrations of both tasks."""
    chunks = np.concatenate([demonstrate(task, 500, horizon=16, dim=3, seed=0) for task in TASKS])
    return OATProcessor.fit(np.random.default_rng(0).permutation(chunks), preset="tiny", steps=100)


def make_model() -> Model:
    """Return an untrained language model that reads and writes bytes."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    return LlamaForCausalLM(config)


def read_prompt(task: str) -> list[int]:
    """Return the bytes of a task's name, filled up so that all prompts are equally long."""
    return list(task.ljust(PROMPT_LENGTH).encode())


def make_examples(tokenizer: OATProcessor, vocabulary: ActionVocabulary) -> Tensor:
    """Return a row of prompt, action tokens and end for every demonstration."""
    rows = []
    for task in TASKS:
        chunks = demonstrate(task, 64, tokenizer.time_horizon, tokenizer.action_dim, seed=1)
        rows += [[*read_prompt(task), *vocabulary.to_llm(tokens), EOS] for tokens in tokenizer(chunks)]
    return torch.tensor(rows)


def train(model: Model, examples: Tensor, steps: int) -> list[float]:
    """Train the model to continue prompts by action tokens, and return the losses."""
    labels = examples.clone()
    labels[:, :PROMPT_LENGTH] = -100  # what transformers ignores: the prompt is given, not predicted
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    losses = []
    for step in range(steps):
        chosen = torch.randperm(len(examples), generator=torch.Generator().manual_seed(step))[:32]
        loss = model(input_ids=examples[chosen], labels=labels[chosen]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@torch.no_grad()
def act(model: Model, vocabulary: ActionVocabulary, task: str, num_tokens: int) -> list[int]:
    """Return the action tokens that the model writes for a task."""
    prompt = torch.tensor([read_prompt(task)])
    only_actions = ActionTokensOnly(vocabulary, num_tokens, PROMPT_LENGTH, EOS)
    written = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        logits_processor=[only_actions],
        max_new_tokens=num_tokens + 1,
        do_sample=False,
    )
    return vocabulary.from_llm(written[0, PROMPT_LENGTH:-1].tolist())


def main(options: Options) -> None:
    """Fit or load a tokenizer, train the model, and show what it does for every task."""
    console = Console(soft_wrap=True, highlight=False)
    if options.tokenizer is None:
        tokenizer = fit_tokenizer()
    else:
        tokenizer = AutoProcessor.from_pretrained(options.tokenizer, trust_remote_code=True)
    model = make_model()
    vocabulary = ActionVocabulary.reserve(model, tokenizer.vocab_size)
    console.print(f"words {WORDS}, with actions {model.config.vocab_size}")
    losses = train(model, make_examples(tokenizer, vocabulary), options.steps)
    console.print(f"loss {losses[0]:.2f} → {losses[-1]:.2f}")
    for task in TASKS:
        tokens = act(model, vocabulary, task, options.num_tokens)
        (chunk,) = tokenizer.decode([tokens])
        end = ", ".join(f"{value:.2f}" for value in chunk[-1])
        console.print(f"{task}: tokens {tokens} decode to {chunk.shape} actions that end at ({end})")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
