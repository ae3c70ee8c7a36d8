"""What a job has trained, read from its last checkpoint in the store of a service on this
machine."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.e2e.service import Service


def weights(service: Service, job_id: str) -> dict[str, torch.Tensor]:
    """The tensors of a job's final checkpoint's model, flattened by name."""
    items = service.http.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
    folder = Path(next(item for item in items if item["final"])["location"].removeprefix("file://"))
    state = torch.load(folder / "state.pt", weights_only=True)
    found = {
        name: value for name, value in state["model"].items() if isinstance(value, torch.Tensor)
    }
    assert found
    return found
