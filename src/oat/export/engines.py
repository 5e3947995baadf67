"""What runs a policy's graphs: ONNX Runtime, or PyTorch's compiler."""

import os
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from oat.errors import CheckpointError
from oat.io.extras import import_extra


@runtime_checkable
class Engine(Protocol):
    """Run graphs on values of its own, which stay on its device between two runs."""

    @property
    def graphs(self) -> Collection[str]:
        """Return the names of the graphs that it can run."""
        ...

    def put(self, value: Tensor | int) -> Any:
        """Return a tensor as a value of the engine's."""
        ...

    def get(self, value: Any) -> Tensor:
        """Return one of the engine's values as a tensor."""
        ...

    def run(self, graph: str, inputs: Mapping[str, Any]) -> Any:
        """Run a graph, and return its outputs in order."""
        ...


class OnnxEngine:
    """Run graphs by ONNX Runtime, without its telemetry, on the first CUDA device or else on the CPU."""

    def __init__(self, models: Mapping[str, bytes], threads: int = 1) -> None:
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when it is imported
        self._library = import_extra("onnxruntime", "export")
        self._library.disable_telemetry_events()
        found = set(self._library.get_available_providers())
        providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in found]
        self._device = "cuda" if providers[0].startswith("CUDA") else "cpu"
        options = self._library.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._sessions: dict[str, Any] = {}
        # A binding holds one call's inputs and outputs: each thread has its own.
        self._bindings = threading.local()
        for name, model in models.items():
            try:
                session = self._library.InferenceSession(model, options, providers=providers)
            except Exception as error:  # its own kinds of exceptions share nothing else
                raise CheckpointError(f"ONNX Runtime cannot run the graph {name!r}: {error}") from error
            self._sessions[name] = session

    @property
    def graphs(self) -> Collection[str]:
        return self._sessions

    def input_shapes(self) -> Iterator[tuple[str, tuple[int | str | None, ...]]]:
        """Yield the name and shape of every input of every graph; axes that are free have no number."""
        for session in self._sessions.values():
            yield from ((each.name, tuple(each.shape)) for each in session.get_inputs())

    def put(self, value: Tensor | int) -> Any:
        """Return a copy of a tensor on the session's device."""
        array = np.array(value) if isinstance(value, int) else np.ascontiguousarray(value.numpy())
        return self._library.OrtValue.ortvalue_from_numpy(array, self._device, 0)

    def get(self, value: Any) -> Tensor:
        return torch.from_numpy(value.numpy())

    def run(self, graph: str, inputs: Mapping[str, Any]) -> Any:
        """Run a graph, and return its outputs, which stay on the session's device."""
        binding, bound = self._binding(graph)
        try:
            for name, value in inputs.items():
                if bound.get(name) is not value:  # binding costs more than asking
                    binding.bind_ortvalue_input(name, value)
                    bound[name] = value
            binding.clear_binding_outputs()
            for output in self._sessions[graph].get_outputs():
                binding.bind_output(output.name, self._device)
            self._sessions[graph].run_with_iobinding(binding)
        except Exception as error:  # its own kinds of exceptions share nothing else
            raise CheckpointError(f"ONNX Runtime cannot run the graph {graph!r}: {error}") from error
        return binding.get_outputs()

    def _binding(self, graph: str) -> tuple[Any, dict[str, Any]]:
        """Return this thread's binding of a graph, and the inputs that are bound to it."""
        bindings: dict[str, tuple[Any, dict[str, Any]]] = vars(self._bindings)
        if graph not in bindings:
            if graph not in self._sessions:
                raise CheckpointError(f"the export lacks the graph {graph!r}, it holds {', '.join(self._sessions)}")
            bindings[graph] = (self._sessions[graph].io_binding(), {})
        return bindings[graph]


class TorchEngine:
    """Run the same modules through PyTorch's compiler; on CUDA it records CUDA graphs, for one thread at a time."""

    def __init__(self, modules: Mapping[str, nn.Module], device: torch.device) -> None:
        self._device = device
        mode = "reduce-overhead" if device.type == "cuda" else "default"
        self._modules = {name: torch.compile(each.to(device).eval(), mode=mode) for name, each in modules.items()}

    @property
    def graphs(self) -> Collection[str]:
        return self._modules

    def put(self, value: Tensor | int) -> Tensor | int:
        return value if isinstance(value, int) else value.to(self._device)

    def get(self, value: Tensor) -> Tensor:
        return value.cpu()

    def run(self, graph: str, inputs: Mapping[str, Any]) -> Any:
        """Run a compiled module, and return its outputs; CUDA graphs would overwrite them, so they are copied."""
        outputs = self._modules[graph](*inputs.values())
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return [output.clone() for output in outputs] if self._device.type == "cuda" else outputs
