"""Built-in tasks by name. ``domain.spec.tasks`` has the same names with their argument schemas.

Not here: a user's own task (``engine.task.loading``).
"""

from __future__ import annotations

from typing import Final

from lockstep.engine.task.causal_lm import CausalLM
from lockstep.engine.task.hf_causal_lm import HfCausalLM
from lockstep.engine.task.image_classification import ImageClassification
from lockstep.engine.task.interface import Task

BUILT_IN: Final[dict[str, type[Task]]] = {
    "causal_lm": CausalLM,
    "hf_causal_lm": HfCausalLM,
    "image_classification": ImageClassification,
}
