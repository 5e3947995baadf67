"""A next-token policy exported without folding its weights, only to measure what folding them gives."""

from typing import Any

import torch
from torch import Tensor, nn

from oat.export.detokenizer import Detokenizer
from oat.export.engines import OnnxEngine
from oat.export.export import to_onnx
from oat.export.graphs import Graph
from oat.export.token_graphs import GraphTokenPolicy
from oat.nn.cache import KeysValues
from oat.policies import AutoregressivePolicy
from oat.policies.sampling import sample


class PlainContext(nn.Module):
    """Project the context by every block's own cross-attention."""

    def __init__(self, policy: AutoregressivePolicy) -> None:
        super().__init__()
        self.context = policy.context
        self.backbone = policy.backbone

    def forward(self, tasks: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all layers, one after the other."""
        context = self.context(dict(zip(self.context.config.keys, values, strict=True)), tasks)
        pairs = [block.cross_attention.keys_values(context) for block in self.backbone.layers]
        return torch.cat([keys for keys, _ in pairs], 1), torch.cat([values for _, values in pairs], 1)


class StaticCache:
    """Keep keys and values in tensors of full length, as graphs need it."""

    def __init__(self, keys: Tensor, values: Tensor, here: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.here = here

    def append(self, key: Tensor, value: Tensor) -> KeysValues:
        """Write this position's key and value over the empty ones there, and return all."""
        self.keys = torch.where(self.here, key, self.keys)
        self.values = torch.where(self.here, value, self.values)
        return self.keys, self.values


class PlainStep(nn.Module):
    """Generate one token by the blocks as they are trained."""

    places: Tensor

    def __init__(self, policy: AutoregressivePolicy) -> None:
        super().__init__()
        self.policy = policy
        self.heads = policy.config.width.heads
        self.register_buffer("places", torch.arange(policy.length))

    def forward(self, last: Tensor, place: Tensor, cache: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the token, its log-probability and the cache, as `TokenStep` does."""
        keys, values, noise, temperature, top_k = given
        policy = self.policy
        x = (policy.embedding(last) + policy.positions[place])[:, None]
        mask = (self.places <= place)[None, None, None]
        kept = torch.split(cache, self.heads, 1)
        memories = zip(torch.split(keys, self.heads, 1), torch.split(values, self.heads, 1), strict=True)
        extended: list[Tensor] = []
        for number, (block, memory) in enumerate(zip(policy.backbone.layers, memories, strict=True)):
            layer = StaticCache(kept[2 * number], kept[2 * number + 1], (self.places == place)[:, None])
            x = block.extend(x, memory, layer, mask=mask)
            extended += [layer.keys, layer.values]
        logits = policy.logits(policy.backbone.norm(x[:, 0]), policy.embedding.vectors())
        chosen, log_probability = sample(logits, noise, temperature, top_k)
        return chosen, log_probability, torch.cat(extended, dim=1)


def plain_runtime(policy: AutoregressivePolicy) -> GraphTokenPolicy:
    """Return the policy in ONNX Runtime, in one graph per chunk as its usual export, but with its own weights."""
    folded = GraphTokenPolicy.graphs_of(policy)
    context = Graph(PlainContext(policy), folded["context"].inputs, folded["context"].outputs, variadic_from=1)
    keys, values = context.module(*context.inputs.values())
    inputs = {**folded["step"].inputs, "keys": keys.detach(), "values": values.detach()}
    step = Graph(PlainStep(policy), inputs, folded["step"].outputs[:3], variadic_from=3)
    actions = Graph(Detokenizer(policy.tokenizer), folded["actions"].inputs, folded["actions"].outputs)
    models = {name: to_onnx(graph) for name, graph in {"context": context, "step": step, "actions": actions}.items()}
    shape = GraphTokenPolicy.shape_of(policy)
    models |= GraphTokenPolicy.join(models, shape)
    return GraphTokenPolicy.restore(policy.observed, policy.space, OnnxEngine(models), shape)
