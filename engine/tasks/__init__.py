"""The built-in tasks, by the names that specs use. ``domain.tasks`` has the same names with their argument schemas.

Not here: a person's own task (``engine.loading``).
"""

from __future__ import annotations

from typing import Final

from lockstep.engine.task import Task
from lockstep.engine.tasks.causal_lm import CausalLM
from lockstep.engine.tasks.hf_causal_lm import HfCausalLM
from lockstep.engine.tasks.image_classification import ImageClassification

BUILT_IN: Final[dict[str, type[Task]]] = {
    "causal_lm": CausalLM,
    "hf_causal_lm": HfCausalLM,
    "image_classification": ImageClassification,
}
