"""Dropout whose masks belong to the samples and do not depend on ranks or micro-batches.

A mask is a function of (seed, step, position in the batch, layer, use, element). It does not depend
on earlier draws, so a batch that is split otherwise, resumed or repeated drops the same
activations. No generator is used.

Every activation of a sample has an index, and four of them share one 64-bit word:

    word(position, j)  =  mix(key(seed, step) + layer + position · ROW + j · COLUMN)    mod 2^64

``mix`` is two multiplications and two shifts of the kind of SplitMix64's finalizer (Steele, Lea &
Flood 2014); its four 16-bit lanes are compared with the rate, which is therefore a multiple of
1/65536. Within one layer two words have equal inputs only if their positions or their indices
differ by more than 950 million (the shortest vector of the lattice a · ROW + b · COLUMN = 0 mod
2^64), and layers and steps are 64-bit hashes apart. int64 wraps around on every device, and lanes
are in little-endian order, as on all machines that torch supports.

Activation checkpointing computes a layer again during backward; it gets the masks of the forward,
because a use is counted in forwards only. Under ``torch.compile`` the key and the positions are
tensors, so a step recompiles nothing.

Where ranks hold slices of an activation (``train.parallel``), a slice's elements have the indices
of the whole, so the masks do not depend on the cut either.

Not here: the assignment of samples to micro-batches (``engine.step.gradient``), operations that
draw from generators (``engine.runtime.randomness``).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import BadSpecError


def _signed(value: int) -> int:
    """The 64 bits of ``value`` as int64 reads them."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


ROW: Final = _signed(0xD1342543DE82EF95)
COLUMN: Final = _signed(0x9E3779B97F4A7C15)
_USE: Final = _signed(0xA0761D6478BD642F)
_FIRST: Final = _signed(0xBF58476D1CE4E5B9)
_SECOND: Final = _signed(0x94D049BB133111EB)
_LANES: Final = 4
_LANE_BITS: Final = 16
_LANE_VALUES: Final = 1 << _LANE_BITS
_LANE_MASK: Final = _LANE_VALUES - 1
_LANE_MIN: Final = -(1 << 15)


class DropoutCut(NamedTuple):
    """Cut of an activation over the ranks of a tensor group."""

    dim: int
    size: int
    """Number of slices."""
    part: int
    """Index of this rank's slice."""


class _Current:
    """Current micro-batch of a model, shared by all its layers."""

    def __init__(self) -> None:
        self.rows: Tensor | None = None
        """Shape (B,): key and position of each sample; None outside of a micro-batch."""
        self.backward = False
        """True while layers are recomputed in backward."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Current:
        return _Current()  # A copy of the model is no part of the run.


class Dropout(nn.Module):
    """Zero activations with probability ``p``, like ``torch.nn.Dropout``.

    In a run of the engine the masks do not depend on how the batch is split (see the module).
    Outside of one, in a notebook or a test, it is ``torch.nn.functional.dropout``. In eval mode it
    does nothing.

    The first dimension of its input must be the samples of the micro-batch. Each place in a model
    should have a module of its own, as with any dropout; a module used twice in a forward drops
    differently each time.

    Parameters
    ----------
    p : float
        Probability of an activation to be dropped, 0 <= p < 1, rounded to a multiple of 1/65536.
    """

    _layer: Tensor

    def __init__(self, p: float = 0.5):
        super().__init__()
        dropped = round(p * _LANE_VALUES) if 0 <= p < 1 else _LANE_VALUES
        if dropped >= _LANE_VALUES:
            raise ValueError(f"dropout: expected a probability of at least 0 and below 1, got {p}")
        self.p = p
        self._threshold = dropped + _LANE_MIN
        self._scale = _LANE_VALUES / (_LANE_VALUES - dropped)
        self._current = _Current()
        self._uses = [0]
        self._cut: DropoutCut | None = None
        # A tensor, not a number: compiled code that several layers share must not be compiled for
        # each.
        self.register_buffer("_layer", torch.zeros((), dtype=torch.int64), persistent=False)

    @property
    def cut(self) -> DropoutCut | None:
        """Cut of its input, if that is a slice: the elements then have the whole's indices."""
        return self._cut

    @cut.setter
    def cut(self, cut: DropoutCut | None) -> None:
        self._cut = cut

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self._threshold == _LANE_MIN:
            return x
        rows_B = self._current.rows
        if rows_B is None:
            return F.dropout(x, self.p, training=True)
        if x.ndim == 0 or x.shape[0] != rows_B.shape[0]:
            raise BadSpecError(
                "lockstep.Dropout: the first dimension of its input must be the "
                f"{rows_B.shape[0]} samples of the micro-batch, but the input has the shape "
                f"{tuple(x.shape)}: move the samples to the first dimension",
            )
        return (x * self._keep(rows_B, x)).mul_(self._scale)

    def _keep(self, rows_B: Tensor, x: Tensor) -> Tensor:
        """Return the mask of activations to keep, a bool tensor of the shape of ``x``."""
        layer = self._layer
        use = self._use()
        if use:
            layer = layer + _signed(use * _USE)
        features = math.prod(x.shape[1:])
        keys_B1 = (rows_B + layer).unsqueeze(1)
        if self._cut is not None:
            index = _indices(x, self._cut)
            return (_lanes(keys_B1 + index // _LANES * COLUMN, index) >= self._threshold).view(
                x.shape
            )
        if torch.compiler.is_compiling():
            # One fused loop over the activations, with the same masks. Not a view as int16:
            # inductor's code for it
            # writes outside of its memory (torch 2.13, CPU). The xor with nothing keeps inductor
            # from multiplying
            # symbolically: it has no numbers beyond 64 bits.
            index = torch.arange(features, device=x.device)
            words = torch.bitwise_xor(index // _LANES, layer & 0) * COLUMN
            return (_lanes(keys_B1 + words, index) >= self._threshold).view(x.shape)
        words = torch.arange(-(-features // _LANES), device=x.device).mul_(COLUMN)
        lanes = mix(keys_B1 + words).view(torch.int16)[:, :features]
        return (lanes >= self._threshold).view(x.shape)

    def _use(self) -> int:
        """Return the number of earlier uses of this module in this forward."""
        used = self._uses[0]
        if not self._current.backward:
            self._uses[0] = used + 1
            return used
        if used > 1:
            raise BadSpecError(
                f"a lockstep.Dropout is used {used} times in one micro-batch and recomputed in "
                "backward, where the uses cannot be distinguished: use a separate module for "
                "each use, or set activation_checkpointing: false",
            )
        return 0

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _lanes(words: Tensor, index: Tensor) -> Tensor:
    """Return the lane of each element's word, as its number with a sign."""
    lanes = mix(words) >> (index % _LANES * _LANE_BITS)
    return ((lanes & _LANE_MASK) ^ -_LANE_MIN) + _LANE_MIN


def _indices(x: Tensor, cut: DropoutCut) -> Tensor:
    """Return the indices of a slice's elements in the whole activation of a sample."""
    outer, inner = math.prod(x.shape[1 : cut.dim]), math.prod(x.shape[cut.dim :])
    first = torch.arange(outer, device=x.device).unsqueeze(1) * (cut.size * inner)
    return (first + torch.arange(inner, device=x.device) + cut.part * inner).view(-1)


def mix(words: Tensor) -> Tensor:
    """Scramble int64 words in place so that every bit of the input moves every lane of the output.

    The shifts carry the sign along, which int64 has no other way to do in one pass. So two inputs
    may meet in one output; the multiplication that comes last spreads the outputs over all lanes
    evenly.
    """
    words ^= words >> 32
    words *= _FIRST
    words ^= words >> 29
    words *= _SECOND
    return words


def name_layers(model: nn.Module) -> None:
    """Give each dropout of ``model`` its own masks, by its name in the model.

    Before anything is wrapped or compiled.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, Dropout):
            digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
            layer._layer.fill_(int.from_bytes(digest, "little", signed=True))


class Masks:
    """Sets the current samples for the dropouts of one model.

    Costs nothing for a model without any.

    Parameters
    ----------
    model : nn.Module
        Its layers must have their names (``name_layers``).
    seed : int
        The job's seed.
    device : torch.device
    """

    def __init__(self, model: nn.Module, *, seed: int, device: torch.device):
        self._layers = [module for module in model.modules() if isinstance(module, Dropout)]
        self._seed, self._device = seed, device
        self._current = _Current()
        self._positions = torch.zeros(0, dtype=torch.int64, device=device)
        self._step, self._key = -1, 0
        for layer in self._layers:
            layer._current = self._current

    def begin_micro_batch(self, step: int, position: int, samples: int) -> None:
        """The next forward computes these samples.

        Parameters
        ----------
        step : int
            Optimizer step, counted from 0.
        position : int
            The first sample's position within the batch of that step.
        samples : int
            The samples of the micro-batch; consecutive positions.
        """
        if not self._layers:
            return
        if step != self._step:
            self._step, self._key = step, randomness.seed_of(randomness.DROPOUT, self._seed, step)
        if samples > len(self._positions):
            self._positions = torch.arange(2 * samples, device=self._device).mul_(ROW)
        # One small kernel and no copy from the host, which on CUDA would wait for the device.
        self._current.rows = self._positions[:samples] + _signed(self._key + position * ROW)
        self._current.backward = False
        for layer in self._layers:
            layer._uses[0] = 0

    def begin_backward_of(self, step: int, position: int, samples: int) -> None:
        """Layers that run from here on are recomputed for an earlier micro-batch."""
        uses = [layer._uses[0] for layer in self._layers]
        self.begin_micro_batch(step, position, samples)
        for layer, used in zip(self._layers, uses, strict=True):
            layer._uses[0] = used
        self.begin_backward()

    def begin_backward(self) -> None:
        """Mark the end of forward: layers that run from here on are recomputed."""
        self._current.backward = True

    def end(self) -> None:
        """Leave the micro-batch: the layers are ordinary dropouts."""
        self._current.rows = None
