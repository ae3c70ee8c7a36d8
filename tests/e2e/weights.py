"""Trained weights of a job, from its last checkpoint in the store of a local service."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.e2e.service import Service


def weights(service: Service, job_id: str) -> dict[str, torch.Tensor]:
    """Return the tensors of the model in a job's final checkpoint, flattened by name."""
    items = service.http.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
    folder = Path(next(item for item in items if item["final"])["location"].removeprefix("file://"))
    state = torch.load(folder / "state.pt", weights_only=True)
    found = {
        name: value for name, value in state["model"].items() if isinstance(value, torch.Tensor)
    }
    assert found
    return found
