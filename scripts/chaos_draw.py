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


@attrs.frozen
class Schedule:
    """The plan of each rank, and the signals to the runner: after how many seconds, which one, to which process."""

    seed: int
    plans: tuple[str, ...]
    blows: tuple[tuple[float, str, str], ...]
    options: tuple[str, ...]
    surroundings: tuple[str, ...] = ()  # see `Place`

    @property
    def is_held(self) -> bool:
        """Whether processes are stopped for a while, so that what happens meanwhile is seen in no certain order."""
        return any(name == "STOP" for _moment, name, _whom in self.blows)

    @property
    def has_patience(self) -> bool:
        """Whether every rank has its grace.

        It has where the program is asked to stop once, or twice at the same moment, but not by Ctrl-C after a failure.
        """
        stops = {(moment, name) for moment, name, _whom in self.blows if name in STOPPING}
        may_fail = any(re.search(r"die=\w+$|exit=[1-9]\d*$", plan) for plan in self.plans)
        is_cut_short = may_fail and any(name == "INT" for _moment, name in stops)
        return len(stops) < 2 and not (is_cut_short or self.is_beheaded or self.is_held)

    @property
    def is_beheaded(self) -> bool:
        """Whether the runner or the guardian is killed, so that the status and last bytes of ranks may be lost."""
        return any(name == "KILL" for _moment, name, _whom in self.blows)

    @property
    def is_cut_short(self) -> bool:
        """Whether the program may be asked to stop twice, so that it waits for no disk any more."""
        return sum(name in STOPPING for _moment, name, _whom in self.blows) > 1

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
    blows = _draw_blows(dice, plans, surroundings)
    options: tuple[str, ...] = dice.choice(((), ("--console", "none"), ("--quiet",), ("--no-prefix",)))
    if dice.random() < 0.1 and not any(name == "REMOVE" for _moment, name, _whom in blows):
        options += ("--log-max-size", "64K", "--log-backups", "1000")
    return Schedule(seed, tuple(plans), tuple(sorted(blows)), options, surroundings)


def _draw_blows(dice: random.Random, plans: list[str], surroundings: tuple[str, ...]) -> list[tuple[float, str, str]]:
    blows: list[tuple[float, str, str]] = []
    if any(plan.endswith("linger") for plan in plans) or dice.random() < 0.5:
        heard = STOPPING if "nohup" not in surroundings else ("TERM", "INT", "QUIT")
        blows.append((dice.uniform(0, 0.8), dice.choice(heard), "guardian"))
    if dice.random() < 0.3:
        blows.append((dice.uniform(0, 1.2), dice.choice(STOPPING), "guardian"))
    if dice.random() < 0.2:
        blows.append((dice.uniform(0.1, 0.6), "KILL", dice.choice(("runner", "guardian"))))
    if dice.random() < 0.1:
        blows.append((dice.uniform(0, 0.4), "USR1", "guardian"))
    if dice.random() < 0.15:
        moment = dice.uniform(0, 1.0)
        blows += [(moment, dice.choice(STOPPING), "guardian") for _ in range(dice.choice((2, 5)))]
    if dice.random() < 0.1 and not set(DISKS).intersection(surroundings):
        blows.append((dice.uniform(0.1, 0.6), "REMOVE", "logs"))
    blows += _draw_odd_blows(dice)
    blows += _draw_disk_blows(dice, surroundings)
    if set(DISKS).intersection(surroundings) and dice.random() < 0.7:
        blows.append((-1.0, "AWAIT", "ranks"))  # all other moments count from when a rank has begun to write
    if "table" in surroundings:
        blows.append((dice.uniform(0, 0.6), "CHANGE", "table"))
    if "container" in surroundings:  # the kernel kills all others with its first process
        blows = [blow for blow in blows if blow[1] != "KILL"]
    return blows


def _draw_odd_blows(dice: random.Random) -> list[tuple[float, str, str]]:
    """Draw signals that reach guardian and runner alike, floods, and processes that are stopped for a while."""
    blows: list[tuple[float, str, str]] = []
    if dice.random() < 0.15:
        blows.append((dice.uniform(0, 0.8), dice.choice(("TERM", "INT")), "both"))
    if dice.random() < 0.1:
        blows.append((dice.uniform(0, 0.6), "USR1", "flood"))
    if dice.random() < 0.2:
        moment, whom = dice.uniform(0, 0.6), dice.choice(("runner", "guardian", "ranks"))
        blows += [(moment, "STOP", whom), (moment + dice.uniform(0.05, 1.5), "CONT", whom)]
    return blows


def _draw_disk_blows(dice: random.Random, surroundings: tuple[str, ...]) -> list[tuple[float, str, str]]:
    """Draw when a disk hangs or is lost, and what ends that."""
    moment = dice.uniform(0, 0.6) if dice.random() < 0.8 else 0.0
    later = moment + dice.uniform(0.1, 4.0)
    if "hanging" in surroundings:
        # What needs a disk before the ranks start waits for it, until it responds or the user asks twice.
        stops = [(later, "TERM", "guardian"), (later + 0.5, dice.choice(("TERM", "INT")), "guardian")]
        # The kernel keeps the first process of a container until the last one has got away from the disk.
        is_for_good = "container" not in surroundings and dice.random() < 0.5
        return [(moment, "HANG", "disk"), *(stops if is_for_good else [(later, "RESPOND", "disk")])]
    if "lost" in surroundings:
        # A disk that is mounted again is not seen in a mount namespace of its own.
        is_mounted_again = "container" not in surroundings and dice.random() < 0.5
        return [(moment, "LOSE", "disk"), *([(later, "MOUNT", "disk")] if is_mounted_again else [])]
    return []
