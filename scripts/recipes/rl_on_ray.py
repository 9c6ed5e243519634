"""A small RL loop on Ray, as verl's: an actor with a policy on each NPU plays, and the learner improves the policy.

The policy chooses among four arms, of which the third one pays most; REINFORCE finds it.
"""

from __future__ import annotations

import ray
import torch


class Player:
    """Plays with the policy that it is given, on the NPU of its own."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.npu = ray.get_runtime_context().get_accelerator_ids()["NPU"][0]  # torch.npu.set_device(int(self.npu))

    def play(self, policy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return arms that were chosen, and what they paid."""
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
