"""A small RL loop on Ray, like verl's: one actor per NPU plays with the policy, and the learner improves it.

The policy chooses among four arms. REINFORCE finds the third one, which pays most.
"""

from __future__ import annotations

import ray
import torch


class Player:
    """Plays with a given policy, on an NPU of its own."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.npu = ray.get_runtime_context().get_accelerator_ids()["NPU"][0]  # torch.npu.set_device(int(self.npu))

    def play(self, policy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the chosen arms and their rewards."""
        arms = torch.multinomial(policy.softmax(0), 64, replacement=True, generator=self.random)
        return arms, torch.tensor([0.1, 0.2, 0.9, 0.3])[arms]


ray.init()
npus = int(ray.cluster_resources()["NPU"])
players = [ray.remote(resources={"NPU": 1}, num_cpus=0)(Player).remote(seed) for seed in range(npus)]
policy = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.Adam([policy], lr=0.2)
for step in range(20):
    played = ray.get([player.play.remote(policy.detach()) for player in players])
    arms, paid = (torch.cat(parts) for parts in zip(*played))
    loss = -(policy.log_softmax(0)[arms] * (paid - paid.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {npus} players, mean reward {paid.mean():.3f}", flush=True)
print(f"the policy prefers arm {int(policy.argmax())}", flush=True)
