"""The events of a chaos run: a schedule, drawn at random from a seed."""

from __future__ import annotations

import random
import re

import attrs

RANKS = 8
DEADLY = ("SEGV", "KILL", "ABRT", "BUS", "HUP", "INT", "TERM", "FPE")
STOPPING = ("TERM", "INT", "HUP", "QUIT")
# The probability of each, independently; see `Place`.
SURROUNDINGS = {
    "container": 0.1,
    "nohup": 0.1,
    "closed": 0.1,
    "stalled": 0.1,
    "long": 0.1,
    "full": 0.1,
    "little": 0.05,
    "crowded": 0.05,
    "clock": 0.1,
    "table": 0.1,
    "disk": 0.3,
}
DISKS = ("slow", "hanging", "lost")
FLOOD = 20_000_000  # bytes of one rank, more than the queue in front of its log file holds


@attrs.frozen(order=True)
class Fault:
    """What happens to whom: a signal or what befalls files or a disk, `moment` seconds after the start."""

    moment: float
    name: str
    target: str


@attrs.frozen
class Schedule:
    """The plan of each rank, and what goes wrong around them."""

    seed: int
    plans: tuple[str, ...]
    faults: tuple[Fault, ...]
    options: tuple[str, ...]
    surroundings: tuple[str, ...] = ()  # see `Place`

    @property
    def has_pause(self) -> bool:
        """Whether processes are stopped for a while, so that what happens meanwhile is seen in no certain order."""
        return any(fault.name == "STOP" for fault in self.faults)

    @property
    def has_grace(self) -> bool:
        """Whether every rank has its grace.

        It has where the program is asked to stop once, or twice at the same moment, but not by Ctrl-C after a failure.
        """
        stops = {(fault.moment, fault.name) for fault in self.faults if fault.name in STOPPING}
        may_fail = any(re.search(r"die=\w+$|exit=[1-9]\d*$", plan) for plan in self.plans)
        is_killed_early = may_fail and any(name == "INT" for _moment, name in stops)
        return len(stops) < 2 and not (is_killed_early or self.has_kill or self.has_pause)

    @property
    def has_kill(self) -> bool:
        """Whether the runner or the guardian is killed, so that the status and last bytes of ranks may be lost."""
        return any(fault.name == "KILL" for fault in self.faults)

    @property
    def is_cut_short(self) -> bool:
        """Whether the program may be asked to stop twice, so that it waits for no disk any more."""
        return sum(fault.name in STOPPING for fault in self.faults) > 1

    @property
    def disk(self) -> str:
        """The fault of the disk with the logs, or "" if there is none."""
        return next((word for word in self.surroundings if word in DISKS), "")

    @property
    def size(self) -> int:
        """How many bytes the ranks are to write."""
        words = [word.partition("=") for plan in self.plans for word in plan.split(",")]
        return sum(int(value) for name, _, value in words if name == "write")


def draw(seed: int) -> Schedule:
    """Draw a schedule."""
    dice = random.Random(seed)
    drawn = (word for word, share in SURROUNDINGS.items() if dice.random() < share)
    surroundings = tuple(dice.choice(DISKS) if word == "disk" else word for word in drawn)
    deadly = DEADLY if "nohup" not in surroundings else tuple(name for name in DEADLY if name != "HUP")
    meeting = f"at={dice.randrange(200, 700)}" if dice.random() < 0.2 else ""
    most, longest = (12, 400) if set(DISKS).intersection(surroundings) else (3, 60)  # steps, and milliseconds of a nap
    plans = []
    for _ in range(RANKS):
        words = []
        if dice.random() < 0.15:
            words.append(dice.choice(("ignore=TERM", "save=200")))
        if dice.random() < 0.25:
            words.append("child=" + dice.choice(("plain", "group", "session", "daemon", "headless")))
        if dice.random() < 0.03:
            words.append(dice.choice(("forks=10", "forks=60", "forks=500", "chains=8")))
        if "crowded" in surroundings:  # a rank that cannot fork does not follow its plan
            words = [word for word in words if not word.startswith(("child", "forks", "chains"))]
        works = (
            f"write={dice.randrange(20_000)}",
            f"write={dice.randrange(900_000)}",
            f"nap={dice.randrange(longest)}",
        )
        words += dice.choices(works, k=dice.randrange(most))
        words += filter(None, [meeting])
        ends = ("exit=0", f"exit={dice.randrange(1, 125)}", "die=" + dice.choice(deadly), "linger", "stop,linger")
        words.append(dice.choices(ends, (6, 1, 1, 3, 0.5))[0])
        plans.append(",".join(words))
    if "hanging" in surroundings and dice.random() < 0.3:
        plans[0] = f"write={FLOOD},{plans[0]}"
    faults = _draw_faults(dice, plans, surroundings)
    options: tuple[str, ...] = dice.choice(((), ("--console", "none"), ("--quiet",)))
    if dice.random() < 0.1 and not any(fault.name == "REMOVE" for fault in faults):
        options += ("--log-max-size", "16M")
    return Schedule(seed, tuple(plans), tuple(sorted(faults)), options, surroundings)


def _draw_faults(dice: random.Random, plans: list[str], surroundings: tuple[str, ...]) -> list[Fault]:
    faults: list[Fault] = []
    if any(plan.endswith("linger") for plan in plans) or dice.random() < 0.5:
        heard = STOPPING if "nohup" not in surroundings else ("TERM", "INT", "QUIT")
        faults.append(Fault(dice.uniform(0, 0.8), dice.choice(heard), "guardian"))
    if dice.random() < 0.3:
        faults.append(Fault(dice.uniform(0, 1.2), dice.choice(STOPPING), "guardian"))
    if dice.random() < 0.2:
        faults.append(Fault(dice.uniform(0.1, 0.6), "KILL", dice.choice(("runner", "guardian"))))
    if dice.random() < 0.1:
        faults.append(Fault(dice.uniform(0, 0.4), "USR1", "guardian"))
    if dice.random() < 0.15:
        moment = dice.uniform(0, 1.0)
        faults += [Fault(moment, dice.choice(STOPPING), "guardian") for _ in range(dice.choice((2, 5)))]
    if dice.random() < 0.1 and not set(DISKS).intersection(surroundings):
        faults.append(Fault(dice.uniform(0.1, 0.6), "REMOVE", "logs"))
    faults += _draw_odd_faults(dice)
    faults += _draw_disk_faults(dice, surroundings)
    if set(DISKS).intersection(surroundings) and dice.random() < 0.7:
        faults.append(Fault(-1.0, "AWAIT", "ranks"))  # all other moments count from when a rank has begun to write
    if "table" in surroundings:
        faults.append(Fault(dice.uniform(0, 0.6), "CHANGE", "table"))
    if "container" in surroundings:  # the kernel kills all others with its first process
        faults = [fault for fault in faults if fault.name != "KILL"]
    return faults


def _draw_odd_faults(dice: random.Random) -> list[Fault]:
    """Draw signals that reach guardian and runner alike, floods, and processes that are stopped for a while."""
    faults: list[Fault] = []
    if dice.random() < 0.15:
        faults.append(Fault(dice.uniform(0, 0.8), dice.choice(("TERM", "INT")), "both"))
    if dice.random() < 0.1:
        faults.append(Fault(dice.uniform(0, 0.6), "USR1", "flood"))
    if dice.random() < 0.2:
        moment, target = dice.uniform(0, 0.6), dice.choice(("runner", "guardian", "ranks"))
        faults += [Fault(moment, "STOP", target), Fault(moment + dice.uniform(0.05, 1.5), "CONT", target)]
    return faults


def _draw_disk_faults(dice: random.Random, surroundings: tuple[str, ...]) -> list[Fault]:
    """Draw when a disk hangs or is lost, and what ends that."""
    moment = dice.uniform(0, 0.6) if dice.random() < 0.8 else 0.0
    later = moment + dice.uniform(0.1, 4.0)
    if "hanging" in surroundings:
        # What needs a disk before the ranks start waits for it, until it responds or the user asks twice.
        stops = [Fault(later, "TERM", "guardian"), Fault(later + 0.5, dice.choice(("TERM", "INT")), "guardian")]
        # The kernel keeps the first process of a container until the last one has got away from the disk.
        is_for_good = "container" not in surroundings and dice.random() < 0.5
        return [Fault(moment, "HANG", "disk"), *(stops if is_for_good else [Fault(later, "RESPOND", "disk")])]
    if "lost" in surroundings:
        # A disk that is mounted again is not seen in a mount namespace of its own.
        is_mounted_again = "container" not in surroundings and dice.random() < 0.5
        return [Fault(moment, "LOSE", "disk"), *([Fault(later, "MOUNT", "disk")] if is_mounted_again else [])]
    return []
