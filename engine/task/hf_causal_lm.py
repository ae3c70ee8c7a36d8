"""``hf_causal_lm``: fine-tuning of a causal language model of Hugging Face's ``transformers``.

The model's folder on the node is the output of ``save_pretrained``: ``config.json``, weights, and
the tokenizer's files. Nothing is downloaded. The loss is the engine's own sum over tokens, not the
model's mean.

Not here: the arguments and their limits (``domain.spec.tasks.HfCausalLMArgs``).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lockstep.domain.packages import with_extra
from lockstep.domain.spec.tasks import HfCausalLMArgs
from lockstep.engine.parallel.plan import matching
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.task import text
from lockstep.engine.task.causal_lm import TextTask, token_cache
from lockstep.engine.task.text import Windows


class HfCausalLM(TextTask):
    """A pretrained model on text of one's own."""

    args: HfCausalLMArgs

    def __init__(self, **arguments: object):
        self.args = HfCausalLMArgs.model_validate(arguments)

    def prepare(self) -> None:
        _ = self._tokens  # Encoded by the node's first rank, and only mapped by the others.

    def model(self) -> nn.Module:
        transformers = _transformers()
        folder = self._folder
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        positions = getattr(config, "max_position_embeddings", None)
        if positions is not None and self.args.context > positions:
            raise BadSpecError(
                f"task_args.context is {self.args.context}, but the model in {folder} has only "
                f"{positions} positions",
            )
        # Float32 whatever the files hold: gradients add up in the parameters' own type.
        if self.args.from_scratch:
            model: nn.Module = transformers.AutoModelForCausalLM.from_config(
                config, dtype="float32"
            )
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, dtype="float32"
            )
        return model.float()

    def tensor_plan(self, model: nn.Module) -> dict[str, str]:
        """Return the plan of transformers for the model, with the lines of ``task_args``."""
        theirs = getattr(model, "tp_plan", None) or {}
        plan = {line: word for line, word in theirs.items() if matching(model, line)}
        return {
            line: word
            for line, word in (plan | (self.args.tensor_plan or {})).items()
            if word is not None
        }

    def dataset(self, split: str) -> Windows:
        return Windows(self._tokens, self.args.context, split=split)

    def logits(self, model: nn.Module, tokens_BT: Tensor) -> Tensor:
        logits_BTV: Tensor = model(input_ids=tokens_BT, use_cache=False).logits
        return logits_BTV

    def export_files(self, model: nn.Module, folder: Path) -> None:
        super().export_files(model, folder)
        tokenizer = self._tokenizer
        # Several chat templates would become a folder of files, which a checkpoint cannot hold.
        tokenizer.save_pretrained(
            folder, save_jinja_files=not isinstance(tokenizer.chat_template, dict)
        )

    @property
    def _folder(self) -> Path:
        folder = Path(self.args.model)
        if not (folder / "config.json").is_file():
            raise BadSpecError(
                f"task_args.model: {folder} has no config.json; expected a folder on the node "
                "written by a model's save_pretrained",
            )
        return folder

    @property
    def _tokenizer(self) -> Any:
        return _transformers().AutoTokenizer.from_pretrained(self._folder, local_files_only=True)

    @cached_property
    def _tokens(self) -> Tensor:
        tokenizer = self._tokenizer
        fast = getattr(tokenizer, "backend_tokenizer", None)
        if fast is None:
            raise BadSpecError(
                f"task_args.model: the tokenizer in {self._folder} has no tokenizer.json; save it "
                f"as a fast tokenizer",
            )
        return text.encoded_tokens(
            Path(self.args.path),
            self.args.glob,
            self.args.max_bytes,
            encode=text.encoder(fast),
            vocabulary=len(tokenizer),
            identity=fast.to_str().encode(),
            cache=token_cache(),
        )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise BadSpecError(
            f"hf_causal_lm needs the package transformers on the node: {with_extra('hf')}",
        ) from None
    return transformers
