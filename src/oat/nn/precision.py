"""Networks in another precision, beside those whose weights they take."""

from typing import TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def in_double(module: Module) -> Module:
    """Return a module that computes in float64 with the weights of another, which is not touched.

    `torch.func.functional_call` exchanges the weights of the module itself while it runs, which other threads notice.
    """
    double = object.__new__(type(module))
    vars(double).update(vars(module))
    vars(double).update(
        _parameters={name: _double(tensor) for name, tensor in module._parameters.items()},
        _buffers={name: _double(tensor) for name, tensor in module._buffers.items()},
        _modules={name: None if part is None else in_double(part) for name, part in module._modules.items()},
    )
    return double


def _double(tensor: Tensor | None) -> Tensor | None:
    return tensor if tensor is None or not tensor.is_floating_point() else tensor.double()
