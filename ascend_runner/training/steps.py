"""The step that a line of a training reports. Pure: the bytes of a line in, a record out.

A literal is searched for before any regular expression, because few lines of a job report a step. The formats are
taken from the software's own source; tests/training/test_steps.py has lines of each. Which rank prints them differs:
Megatron prints on the last rank, most others on rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

LONGEST = 4096  # bytes of a line that are read
MOST_LINES = 500  # lines at the end of a log that are searched for the newest figures


class Step(NamedTuple):
    """The figures of a line; None for missing ones.

    `step` counts within the epoch if the line does not give the number of steps in one, and `steps` is the number at
    the end of the training. `seconds`, `hardware` and `e2e` (end to end) are for one step, in seconds.
    `throughput` is in the `unit` of the software.
    """

    step: int | None = None
    steps: int | None = None
    seconds: float | None = None
    loss: float | None = None
    throughput: float | None = None
    unit: str = ""
    hardware: float | None = None
    e2e: float | None = None
    is_other: bool = False  # of a bar whose description may name another activity, such as "Testing"

    def figures(self) -> dict[str, Any]:
        """Return the known figures by name."""
        return {name: one for name, one in self._asdict().items() if name != "is_other" and one not in {None, ""}}


NO_STEP = Step()
_WHOLE = ("step", "steps", "epoch", "index", "epochs", "each")  # groups that are integers


class Form(NamedTuple):
    """A format: bytes that every line of it has, the expressions to search for, and the unit of its throughput.

    The groups are named after the figures, or `ms` (of a step), `rate` (steps a second), `epoch` (from 1 on), `index`
    (an epoch, from 0 on), `epochs` and `each` (steps of an epoch). Alternatives add a digit: `step1`, `step2`. `other`
    is a description of another activity.
    """

    literal: bytes
    expressions: tuple[bytes, ...]
    unit: str = ""


_NUMBER = rb"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?|nan|inf)"
_COUNT = rb"\d{1,18}"
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")


def _expressions(*patterns: bytes) -> tuple[bytes, ...]:
    """Return expressions, to be compiled when used, in which `#` is an integer and `~` another number."""
    return tuple(pattern.replace(b"#", _COUNT).replace(b"~", _NUMBER) for pattern in patterns)


# Only the prefix of a logger is permitted before a step: "resumed from step 23, loss 0.0417" and "eval step 23 loss
# 0.0417" report no step of the training. Each byte of it matches in one way only, or a line could take forever.
_PREFIX = (
    rb"^(?:.*\bINFO\b(?::[\w.]+:| +\| [\w.:<>]{1,80} [-|])?)?"
    rb"(?:[^A-Za-z\[{]|\[[^\]]{0,200}\]|(?<=\()\w{1,40} pid=\d{1,10}(?:, ip=[\d.]{1,40})?\))*"
)

# A step and its loss, such as "epoch 1 step 23/500 | lr 0.1 | loss 0.0417". After an epoch, the number of steps belongs
# to the epoch, so it is ignored.
_PLAIN = (
    rb"(?i:" + _PREFIX + rb"\[?(epoch[ :=]{0,3}#(?:/#)?[ ,;:|-]{1,5})?"
    rb"(?:(?:global[ _])?step|iter|iteration|(?(1)batch|step))[ :=]{1,9}(?P<step>#)"
    rb"(?: ?/ ?(?(1)#|(?P<steps>#)))?(?: \(~%\))?[ ,;:|)\]-]{1,9}"
    rb"(?:(?!eval|val|test)[a-z_]{1,20}[ :=]{1,3}~[ ,;|]{1,5}){0,4}?(?:train(?:ing)?[ _])?loss[ :=]{1,5}(?P<loss>~))"
)
# The places of a step in lines that have a loss anywhere.
_PLACES = (
    _PREFIX
    + rb"(?:"
    + rb"|".join(
        (
            rb"Epoch: \[(?P<index1>#)\] *\[ *(?P<step1>#)/ *(?P<each1>#)\]",  # examples of PyTorch, torchvision, Paddle
            rb"Train: (?P<index2>#) \[ *(?P<step2>#)/ *(?P<each2>#) \(",  # timm
            rb"Epoch(?:\(train\))? +\[(?P<epoch3>#)\]\[ *(?P<step3>#)/ *(?P<each3>#)\]",  # MMEngine, MMCV
            rb"Iter(?:\(train\))? +\[ *(?P<step4>#)/ *(?P<steps4>#)\]",
            rb"Train Epoch: (?P<epoch5>#) \[ *(?P<step5>#)/ *(?P<each5>#) ",  # MNIST, in samples
            rb"Epoch \[(?P<epoch6>#)/ *(?P<epochs6>#)\],? (?:Step|Batch) \[ *(?P<step6>#)/ *(?P<each6>#)\]",
            rb"Epoch[ :=]{1,3}#(?:/#)?[ ,:|-]{0,3}\[ *(?P<step7>#)/ *#\]",
            rb"eta: [\d:, day]{1,40} iter: (?P<step8>#) |iter: (?P<step14>#) +total_loss: ",  # Detectron2
            rb"(?:train_inner \| )?epoch #: {1,9}(?P<step9>#) / #",  # fairseq
            rb"train_inner \| {\"epoch\": #,(?=.{1,900}\"num_updates\": \"(?P<step10>#)\")",
            rb"Epoch=(?P<epoch11>#)/(?P<epochs11>#), Step=(?P<step11>#)/(?P<each11>#),",  # PaddleX
            rb"global step (?P<step12>#)(?:/#)?, epoch: #, ",  # PaddleNLP
            rb"step:(?P<step13>#) - ",  # verl; its names have a slash
            rb"epoch +(?P<epoch15>#) \| +(?P<step15>#)/ *(?P<each15>#) batches ",  # word_language_model of PyTorch
            rb"\[#, *(?P<step16>#)\] loss: ",  # PyTorch's tutorials; the second counts samples
            rb"loss: ~ +\[ *(?P<step17>#)/ *#\]",
        )
    )
    + rb")"
)
_FIGURES = (
    rb"(?<![\w/])(?:total_|train_)?[Ll]oss\"?(?:[:=] *| +)\"?(?P<loss>~)",
    (
        rb"(?<![\w/])(?:[Tt]ime|dt|time_each_step|timing_s/step|perf/time_per_step)[:=]? *"
        rb"(?:(?P<ms>~) ?ms|(?P<seconds>~)s?(?![\w:]))|(?<!\w)ms/batch +(?P<ms1>~)"
        rb"|(?<![\w.])(?=[\d.]{1,30} ?m?s/(?:step|it|iter)\b)(?:(?P<ms2>~) ?ms|(?P<seconds1>~))"
    ),
    rb"\"?ups\"?[:=] ?\"?(?P<rate>~)|(?<![\w.])(?=[\d.]{1,30} ?(?:it|steps?)/s\b)(?P<rate1>~)",
)
_ACTOR = rb"(?<![\w/])(?:actor/(?:pg_)?loss|train/loss):(?P<loss>~)"
# A description of a bar that never trains: libraries show it while they load or prepare something. A bar of files or
# examples has another unit than "it".
_PREPARATION = (
    rb"(?i:\b(?:down|up|re)?load|fetch|extract|map\b|filter|token|sav|writ|read|check|conver|pack|shard|file|cach|build"
    rb"|compil|clon|resolv|creat|pars|index|quant|merg|instal|prepar|copy|stage|weights|scan|calibrat|captur|adding"
    rb"|truncat|applying|zipping|delet|initializ|searching)"
)
# A description of a bar that is beside the training if there is another bar.
_OTHER = (
    rb"(?i:generat|eval|valid|\bval\b|\btest|predict|sanity|infer|sampl|process|class +images|comput|embed|rollout|warm"
    rb"|encoding|decoding|scoring|\bdev\b|collating|gather)"
)

FORMS = (
    Form(b"hardware time is ", _expressions(rb"hardware time is (?P<hardware>~) and e2e time is (?P<e2e>~) ?ms")),
    Form(  # Megatron, MindSpeed
        b"elapsed time per iteration (ms): ",
        _expressions(
            rb"iteration +(?P<step>#)(?:/ *(?P<steps>#))?",
            rb"elapsed time per iteration \(ms\): (?P<ms>~)",
            rb"\| *(?:lm |total )?loss:? (?P<loss>~)",
            rb"throughput per GPU \(TFLOP/s/GPU\): (?P<throughput>~)",
        ),
        "TFLOP/s/GPU",
    ),
    Form(
        b"per_step_time: ",  # MindFormers; its trainer for PyNative mode prints no epoch
        _expressions(
            rb"(?:Epoch:\[ *(?P<epoch>#)/ *(?P<epochs>#)\], )?"
            rb"step:\[ *(?P<step>#)/ *(?(epoch)(?P<each>#)|(?P<steps>#))\]",
            rb", loss: *\[?(?P<loss>~)",
            rb"per_step_time: *(?P<ms>~)ms",
            rb"throughput(?:_per_npu)?: *(?P<throughput>~)T",
        ),
        "TFLOP/s/NPU",
    ),
    Form(
        b" samples/s/p ", _expressions(rb"\| (?P<throughput>~) samples/s/p "), "samples/s/NPU"
    ),  # MindFormers' next line
    Form(b", loss is ", _expressions(rb"step: (?P<step>#), loss is \[?(?P<loss>~)")),  # MindSpore's LossMonitor
    Form(  # MindSpore's TimeMonitor
        b"per step time: ",
        _expressions(rb"per step time: (?:(?P<seconds>~) s\b|(?P<ms>~))", rb"loss: (?P<loss>~)"),
    ),
    Form(  # HF Trainer, whose numbers are strings since version 5; LLaMA-Factory
        b"{'loss': ", _expressions(rb"{'loss': '?(?P<loss>~)", rb"'throughput': '?(?P<throughput>~)"), "tokens/s"
    ),
    Form(  # tqdm
        b"%|",
        _expressions(
            rb"^(?!.{0,200}?" + _PREPARATION + rb"[^|]{0,200}%\|)"
            rb"(?=(?i:\W{0,9}train)|(?P<other>.{0,200}?"
            + _OTHER
            + rb"[^|]{0,200}%\|)|)[^%|]{0,200}?(?<!\d)#%\|[^|]*\| (?P<step>#)/(?P<steps>#)"
            rb"(?: {0,9}$| \[(?:[^<\]]*<[^,\]]*, *(?:(?P<rate>~)(?:it|steps?|batch(?:es)?)/s"
            rb"|(?P<seconds>~)s/(?:it|steps?|batch(?:es)?)|\?[a-z]{1,8}/s)|[^<\]]*\]))",
            rb"[ ,](?:train_)?[Ll]oss(?:_step)?[=:] ?(?P<loss>~)",
        ),
    ),
    Form(  # Ultralytics without tqdm
        b"it/s ",
        _expressions(
            rb"^(?!.{0,200}?(?:"
            + _PREPARATION
            + rb"|"
            + _OTHER
            + rb"))[^%]{1,200}?(?<!\d)#% [^ ]{1,99} (?P<step>#)/(?P<steps>#)"
            rb" (?P<rate>~)it/s "
        ),
    ),
    Form(
        b"RunningAvgSamplesPerSec=",  # DeepSpeed
        _expressions(rb"global_step=(?P<step>#)", rb"CurrSamplesPerSec=(?P<throughput>~)"),
        "samples/s",
    ),
    Form(b", skipped=", _expressions(rb"\bstep=(?P<step>#), skipped=")),  # DeepSpeed
    Form(b"X_STEP=", _expressions(rb"^X_STEP=(?P<step>#)$")),  # as in a datagram; see notifications.py
    *(Form(literal, _expressions(_PLACES, *_FIGURES, _ACTOR)) for literal in (b"loss", b"Loss")),
    *(Form(literal, _expressions(_PLAIN, *_FIGURES[1:])) for literal in (b"loss", b"Loss")),
    Form(
        b"poch ",
        _expressions(
            rb"(?i:" + _PREFIX + rb"epoch[ :=]{1,3}#(?:/#)?[ ,;:|-]{1,5}step[ :=]{1,3}(?P<step>#)(?: ?/ ?#)?"
            rb"(?![\w.])[ ,;:|)\]-]{0,9}(?:$|(?!eval|val|test)[a-z_/]{1,20}[ :=]{1,3}~))"
        ),
    ),
)


def parse(line: bytes) -> Step | None:
    """Return the step that a line reports, or None if it reports none. Of a progress bar, the last state counts."""
    shown = b""
    for form in FORMS:
        if form.literal in line:
            shown = shown or _COLOURS.sub(b"", line.rstrip(b"\r\n").rpartition(b"\r")[2][:LONGEST])
            step = _read(shown, form)
            if step:
                return step
    return None


def newest(data: bytes, before: Step = NO_STEP) -> Step:
    """Return the newest figures in some lines, even if two lines share them; missing ones are taken from `before`."""
    figures, other = NO_STEP, NO_STEP
    lines = data.rstrip(b"\n").split(b"\n")[-MOST_LINES:]
    for found in filter(None, map(parse, reversed(lines))):
        if found.is_other:
            other = other if other.is_other else found
            continue
        figures = found._replace(**figures.figures())
        if found.step is not None:
            break
    else:
        figures = other._replace(**figures.figures())
    return before if is_beside(figures, before) else joined(before, figures)


def is_beside(step: Step, last: Step) -> bool:
    """Whether a line reports no step of the training, the newest one of which was `last`.

    It is of another activity, or of a shorter sequence of steps within an unfinished one, such as an evaluation.
    """
    if is_other(step, last):
        return True
    if step.steps is None or last.steps is None or last.step is None or last.is_other is not step.is_other:
        return False
    return step.steps < last.steps and last.step < last.steps


def is_other(step: Step, last: Step) -> bool:
    """Whether a line is of another activity than the training, which has had steps."""
    return step.is_other and not last.is_other and last.step is not None


def joined(last: Step, step: Step) -> Step:
    """Return the figures so far with those of a line; the first step of the training replaces other bars."""
    if step.step is None:
        return last._replace(**step.figures())
    before = NO_STEP if last.is_other and not step.is_other else last
    return before._replace(**step.figures(), is_other=step.is_other)


def furthest(steps: Iterable[Step]) -> Step | None:
    """Return the figures of the rank that is furthest ahead, or None if no rank has a step."""
    known = (step for step in steps if step.step is not None)
    return max(known, key=lambda step: (not step.is_other, step.step), default=None)


def _read(line: bytes, form: Form) -> Step | None:
    found: dict[str, bytes] = {}
    for expression in form.expressions:
        match = re.search(expression, line)
        if match is None and expression is form.expressions[0]:
            return None
        if match:
            groups = match.groupdict().items()
            found.update((name.rstrip("0123456789"), value) for name, value in groups if value is not None)
    return step_of(found, form.unit)


def step_of(found: Mapping[str, bytes], unit: str = "") -> Step:
    """Return the figures of a line from the groups of an expression, see `Form`.

    Raises:
        ValueError: One is not a number.
    """
    whole = {name: int(found[name]) for name in _WHOLE if name in found}
    figures = {name: float(value) for name, value in found.items() if name not in {*whole, "other"}}
    if "each" in whole:
        whole["step"] += whole.get("index", max(0, whole.get("epoch", 1) - 1)) * whole["each"]
        if "epochs" in whole:
            whole["steps"] = whole["epochs"] * whole["each"]
    if figures.get("rate"):
        figures["seconds"] = 1 / figures["rate"]
    for name, of_ms in (("seconds", "ms"), ("hardware", "hardware"), ("e2e", "e2e")):
        if of_ms in figures:
            figures[name] = figures[of_ms] / 1000
    return Step(
        step=whole.get("step"),
        steps=whole.get("steps"),
        seconds=figures.get("seconds"),
        loss=figures.get("loss"),
        throughput=figures.get("throughput"),
        unit=unit if "throughput" in figures else "",
        hardware=figures.get("hardware"),
        e2e=figures.get("e2e"),
        is_other="other" in found,
    )
