"""The spec's sections about how a step's gradient moves the weights.

Not here: the optimizers themselves (``engine.step.optimizer``), and the rate at a step
(``engine.step.schedule``).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from lockstep.domain import limits
from lockstep.domain.errors import at_field
from lockstep.domain.spec.fields import DOTTED_PATH, NO_BOOL, Section


class AdamW(Section):
    """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101)."""

    name: Literal["adamw"] = "adamw"
    """Also meant where no name is written."""
    lr: Annotated[float, Field(gt=0, le=100), NO_BOOL] = 3e-4
    """Learning rate after the warm-up, per optimizer step."""
    weight_decay: Annotated[float, Field(ge=0, le=10), NO_BOOL] = 0.1
    """Decoupled decay, multiplied by the learning rate; not applied to parameters with fewer than
    two dimensions."""
    betas: tuple[
        Annotated[float, Field(ge=0, lt=1), NO_BOOL], Annotated[float, Field(ge=0, lt=1), NO_BOOL]
    ] = (
        0.9,
        0.95,
    )
    """Decay rates of the running averages of the gradient and of its square."""
    eps: Annotated[float, Field(gt=0, le=1), NO_BOOL] = 1e-8
    """Added to the denominator, so that it is never zero."""


class SGD(Section):
    """Stochastic gradient descent, with momentum as PyTorch defines it."""

    name: Literal["sgd"]
    lr: Annotated[float, Field(gt=0, le=1000), NO_BOOL] = 0.1
    """Learning rate after the warm-up, per optimizer step."""
    momentum: Annotated[float, Field(ge=0, lt=1), NO_BOOL] = 0.0
    """Part of the last step's movement that is kept; 0 keeps none."""
    nesterov: bool = False
    """Nesterov's momentum; needs a ``momentum`` above 0."""
    weight_decay: Annotated[float, Field(ge=0, le=10), NO_BOOL] = 0.0
    """Added to the gradient; not applied to parameters with fewer than two dimensions."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise at_field(
                ("nesterov",), "requires a momentum above 0", "set momentum, such as 0.9"
            )
        return self


class OptimizerClass(Section):
    """Any class of torch.optim, of an installed package or of the job's code."""

    name: Annotated[str, Field(pattern=DOTTED_PATH, max_length=200, examples=["torch.optim.NAdam"])]
    """Path of the class. Before step 1, small tensors show whether ranks may share its work; where
    they may not, ``zero1`` or ``fsdp`` is refused."""
    lr: Annotated[float, Field(gt=0, le=1000), NO_BOOL] = 1e-3
    """Learning rate after the warm-up, per optimizer step."""
    weight_decay: Annotated[float, Field(ge=0, le=10), NO_BOOL] | None = None
    """Decay as the class defines it, not applied to parameters with fewer than two dimensions; null
    takes the class's default."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of the class."""

    @field_validator("args")
    @classmethod
    def _no_second_place(cls, args: dict[str, Any]) -> dict[str, Any]:
        for name in ("lr", "weight_decay"):
            if name in args:
                raise at_field((name,), "is a field of the optimizer", f"write it as {name}")
        if "params" in args:
            raise at_field(("params",), "is given by the engine", "remove it")
        return args

    @property
    def is_from_torch(self) -> bool:
        """True if the class is torch's own, so a service may import it."""
        return self.name.startswith("torch.optim.")


def _kind_of(section: object) -> str:
    """Return the tag of the union's member that a section means; AdamW without a name."""
    found = section.get("name") if isinstance(section, dict) else getattr(section, "name", None)
    name = "adamw" if found is None else str(found)
    return "optimizerclass" if "." in name else name


Optimizer = Annotated[
    Annotated[AdamW, Tag("adamw")]
    | Annotated[SGD, Tag("sgd")]
    | Annotated[OptimizerClass, Tag("optimizerclass")],
    Discriminator(_kind_of),
]
OPTIMIZERS: Final[dict[str, type[Section]]] = {
    get_args(member)[1].tag: get_args(member)[0] for member in get_args(get_args(Optimizer)[0])
}
"""Kinds by tag, which is the name of those with settings of their own. ``engine.step.kernels`` has
a row for each."""
NAMES: Final = tuple(tag for tag, kind in OPTIMIZERS.items() if kind is not OptimizerClass)


class Schedule(Section):
    """Learning rate as a function of the optimizer step."""

    name: Literal["constant", "cosine", "linear"] = "constant"
    """After the warm-up: stay at ``lr``, or fall to ``min_lr`` at the last step along a cosine or a
    line."""
    warmup_steps: Annotated[int, Field(ge=0, le=limits.STEPS_MAX), NO_BOOL] = 0
    """Optimizer steps over which the rate rises linearly to ``lr``."""
    min_lr: Annotated[float, Field(ge=0), NO_BOOL] = 0.0
    """Learning rate at the last step of ``cosine`` and ``linear``; at most ``optimizer.lr``."""
