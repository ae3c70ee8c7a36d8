"""Modes of a model's modules: training or evaluation.

A model that ``model()`` returns in training mode keeps the mode of each of its modules: a frozen
backbone stays in evaluation mode. A model that is returned in evaluation mode, as
``from_pretrained`` returns it, is set to training mode as a whole. A ``train()`` of the model's own
is called in both cases, and a module that it sets to evaluation mode stays there.

Not here: the layers whose result depends on the mode (``engine.model.normalization``,
``engine.task.dropout``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from lockstep.engine.runtime.errors import listed
from lockstep.engine.task.dropout import Dropout

_DEPENDS = (_NormBase, _DropoutNd, Dropout)
"""Modules whose result depends on their mode."""


def set_to_train(model: nn.Module) -> None:
    """Set a new model to training mode, without the modules that are to stay in evaluation mode."""
    stay = [module for module in model.modules() if model.training and not module.training]
    model.train()
    for module in stay:
        module.training = False


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode inside the context; then each module gets its own back."""
    before = [(module, module.training) for module in model.modules()]
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)  # A train() of the model's own may do more than set the mode.
        for module, mode in before:
            module.training = mode


def kept_in_evaluation(model: nn.Module) -> tuple[str, str]:
    """Return a line about the modules in evaluation mode, and a warning; empty without any.

    Weights that are trained below dropout or normalisation in evaluation mode are mostly a mistake:
    a part from ``from_pretrained`` inside a model of one's own.
    """
    roots = _roots(model)
    if not roots:
        return "", ""
    names = listed(list(roots))
    count = sum(not module.training for module in model.modules())
    line = f"model() leaves {count} modules in evaluation mode, and they stay there: {names}"
    meant = _with_own_train(model)
    wrong = [
        name for name, root in roots.items() if root not in meant and _trains_below_a_mode(root)
    ]
    if not wrong:
        return line, ""
    return line, (
        f"model() leaves {listed(wrong)} in evaluation mode with trainable weights, so dropout and "
        "normalisation in it do not train: call .train() on it in model(), or freeze its weights "
        "with requires_grad_(False)"
    )


def _roots(model: nn.Module) -> dict[str, nn.Module]:
    """Return the outermost modules in evaluation mode, by name."""
    found: dict[str, nn.Module] = {}
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        if not module.training and module not in inside:
            found[name] = module
            inside |= set(module.modules())
    return found


def _with_own_train(model: nn.Module) -> set[nn.Module]:
    """Return the modules whose own ``train()``, or that of one around them, decides their mode."""
    found: set[nn.Module] = set()
    for module in model.modules():
        if type(module).train is not nn.Module.train:
            found |= set(module.modules())
    return found


def _trains_below_a_mode(root: nn.Module) -> bool:
    depends = any(isinstance(module, _DEPENDS) and not module.training for module in root.modules())
    return depends and any(parameter.requires_grad for parameter in root.parameters())
