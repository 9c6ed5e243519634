"""Taking a Python command apart, and detecting that a command is an engine itself."""

from __future__ import annotations

import pytest

from ascend_runner.engines.command import (
    PythonCommand,
    calls,
    engine_in,
    is_python,
    names_other_nodes,
    program_of,
    python_command,
)


@pytest.mark.parametrize("word", ["python", "python3", "python3.11", "/opt/conda/bin/python", "../python3"])
def test_python(word: str) -> None:
    """A Python is recognized by its name, in any directory."""
    assert is_python(word)


@pytest.mark.parametrize("word", ["pythonw", "bash", "ipython", "python-config", "/opt/python/run", "pypy3"])
def test_no_python(word: str) -> None:
    """Other programs are not a Python."""
    assert not is_python(word)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python a.py -m x", PythonCommand("python", (), False, "a.py", ("-m", "x"))),
        ("python -u a.py", PythonCommand("python", ("-u",), False, "a.py", ())),
        ("python -uB -W no -Xdev a.py 1", PythonCommand("python", ("-uB", "-W", "no", "-Xdev"), False, "a.py", ("1",))),
        ("python -m pkg.train --x", PythonCommand("python", (), True, "pkg.train", ("--x",))),
        ("python -um pkg", PythonCommand("python", ("-u",), True, "pkg", ())),
        ("python -mpkg", PythonCommand("python", (), True, "pkg", ())),
        ("/p/python3 a.py", PythonCommand("/p/python3", (), False, "a.py", ())),
    ],
)  # fmt: skip
def test_taken_apart(line: str, expected: PythonCommand) -> None:
    """Options of the interpreter end where the script or module starts."""
    assert expected == python_command(line.split())


@pytest.mark.parametrize("line", ["python", "python -", "python -c 1", "python -uc 1", "python -m", "bash a.sh", "-u"])
def test_no_script(line: str) -> None:
    """Other programs, and Pythons without a script or module, are not taken apart."""
    assert python_command(line.split()) is None


@pytest.mark.parametrize(
    "line",
    [
        "engine --x a.py",
        "/p/engine a.py",
        "python -m pkg.engine a.py",
        "/p/python -u -m pkg.engine",
        "python /p/engine a.py",
    ],
)
def test_engine_is_called(line: str) -> None:
    """By its own name, or through a Python as the script or module that it is."""
    assert calls(line.split(), "engine", "pkg.engine")


@pytest.mark.parametrize(
    "line",
    [
        "python engine.py",
        "python train.py engine",
        "python -m pkg.engine_2",
        "python -m engine",
        "my-engine",
        "bash engine",
    ],
)
def test_engine_is_only_named(line: str) -> None:
    """Other words may hold its name."""
    assert not calls(line.split(), "engine", "pkg.engine")


def test_words_as_the_interpreter_takes_them() -> None:
    """A module keeps its -m."""
    assert ("-m", "pkg", "1") == PythonCommand("python", (), True, "pkg", ("1",)).words


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("torchrun --nproc_per_node 2 x.py", "torchrun"),
        ("/opt/bin/torchrun x.py", "torchrun"),
        ("python -m torch.distributed.run x.py", "torchrun"),
        ("python -u -m torch.distributed.launch x.py", "torch.distributed.launch"),
        ("msrun --worker_num=8 x.py", "msrun"),
        ("mpirun -np 8 python x.py", "mpirun"),
        ("deepspeed x.py", "deepspeed"),
        ("horovodrun -np 8 python x.py", "horovodrun"),
        ("accelerate launch x.py", "accelerate launch"),
        ("llamafactory-cli train x.yaml", "llamafactory-cli"),
        ("python -m llamafactory.cli train x.yaml", "llamafactory-cli"),
        ("env NPROC_PER_NODE=8 swift sft --model x", "swift"),
        ("python /p/bin/swift rlhf --rlhf_type grpo", "swift"),
        ("megatron sft --model x", "megatron"),
        ("ray symmetric-run --address a:1 -- python x.py", "ray"),
        ("env A=1 B=2 torchrun x.py", "torchrun"),
        ("env -i -u RANK torchrun x.py", "torchrun"),
        ("numactl -m 0,1 --cpunodebind=0 nice -n 5 torchrun x.py", "torchrun"),
        ("timeout -k 5 72h deepspeed x.py", "deepspeed"),
        ("numactl --preferred 0 nice --adjustment 5 mpirun x", "mpirun"),
        ("/opt/conda/bin/conda run --no-capture-output -n job torchrun x.py", "torchrun"),
        ("stdbuf -oL setsid -w timeout --signal=KILL 5 horovodrun x", "horovodrun"),
        ("taskset -c 0-7 python -m torch.distributed.run x.py", "torchrun"),
    ],
)
def test_engines(line: str, engine: str) -> None:
    """An engine is detected by its program or module, also behind a wrapper."""
    assert engine == engine_in(line.split())


@pytest.mark.parametrize(
    ("shell", "line", "engine", "is_part"),
    [
        ("bash -c", "torchrun --nproc_per_node 2 train.py", "torchrun", False),
        ("/bin/sh -ec", "source env.sh\nif true; then exec A=1 torchrun --nnodes $N train.py; fi", "torchrun", True),
        ("env A=1 bash -lc", "cd /job && python -m torch.distributed.launch a.py", "torch.distributed.launch", False),
        ("bash -eo pipefail -c", "torchrun train.py", "torchrun", False),
        ("bash -c", "bash -c 'mpirun -np 8 python train.py'", "mpirun", False),
        ("bash -c", "# torchrun train.py\ntorchrun \\\n --nnodes=2 \\\n train.py", "torchrun", True),
        ("bash -c", "# torchrun train.py\npython train.py torchrun", "", False),
        ("bash -c", "echo 'torchrun train.py'", "", False),
        ("bash", "torchrun", "", False),
        ("bash -c", "echo 'a", "", False),
    ],
)
def test_engine_in_the_line_of_a_shell(shell: str, line: str, engine: str, *, is_part: bool) -> None:
    """An engine is detected in what a shell is given with -c, with its own options."""
    argv = (*shell.split(), line)

    assert (engine, is_part) == (engine_in(argv), names_other_nodes(argv))


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --engine torchrun",
        "env ENGINE=torchrun python train.py",
        "accelerate config",
        "llamafactory-cli export x.yaml",
        "python -m llamafactory.launcher x.yaml",
        "swift export --model x",
        "swift",
        "python -m swift.cli.sft --model x",
        "bash train.sh torchrun",
        "nice -n 5 python train.py",
        "conda run -n torchrun python train.py",
        "conda",
        "env",
        "timeout",
    ],
)
def test_other_commands(line: str) -> None:
    """The name of an engine among the arguments does not make a command one."""
    assert "" == engine_in(line.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nproc_per_node 2 x.py", False),
        ("torchrun --nnodes 1 x.py", False),
        ("torchrun --standalone --nnodes=1:1 x.py", False),
        ("torchrun --nnodes 2 --node_rank 0 x.py", True),
        ("python -m torch.distributed.run --nnodes=1:4 x.py", True),
        ("accelerate launch --num_machines 2 x.py", True),
        ("accelerate launch --config_file nodes.yaml x.py", True),
        ("torchrun x.py --config_file train.yaml", False),
        ("msrun x.py", False),
        ("msrun --worker_num=4 --local_worker_num=4 x.py", False),
        ("msrun --worker_num 8 --local_worker_num 4 x.py", True),
        ("mpirun -np 8 x", False),
    ],
)
def test_engine_on_several_nodes(line: str, expected: bool) -> None:  # noqa: FBT001  a parameter of the test
    """The options of an engine may say that other nodes run the same command."""
    assert expected == names_other_nodes(line.split())


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        (("python", "/job/train.py", "a.py"), "train.py"),
        (("python", "-m", "pkg.train"), "pkg.train"),
        (("python", "-c", "pass"), "python"),
        (("nice", "-n", "5", "python", "train.py"), "train.py"),
        (("env", "A=1", "python", "train.py"), "train.py"),
        (("numactl", "-N", "0", "timeout", "72h", "./train"), "train"),
        (("env",), "env"),
        (("bash", "/job/train.sh", "-c", "python a.py"), "train.sh"),
        (("bash", "-x", "train.sh"), "train.sh"),
        (("bash",), "bash"),
        (("bash", "-c", "true"), "bash"),
        (("bash", "-c", "cd /job && A=1 exec python -u train.py --lr 1 2>&1 | tee log"), "train.py"),
        (("/bin/sh", "-ec", "python prepare.py; nice -n 5 python train.py"), "train.py"),
        (("bash", "--norc", "-lc", "source env.sh\npython -m pkg.train"), "pkg.train"),
        (("bash", "-c", "torchrun --nproc_per_node 2 train.py"), "train.py"),
        (("bash", "-c", "bash train.sh"), "train.sh"),
        (("bash", "-o", "pipefail", "/job/train.sh"), "train.sh"),
        (("bash", "-c", "echo ';' 'a"), "bash"),
        (("torchrun", "--nproc_per_node", "2", "/job/train.py", "other.py"), "train.py"),
        (("python", "-m", "torch.distributed.run", "train.py"), "train.py"),
        (("mpirun", "-np", "8", "./a.out"), "mpirun"),
    ],
)
def test_program_that_a_command_runs(argv: tuple[str, ...], program: str) -> None:
    """A job is called after its training, not after the programs that start it."""
    assert program == program_of(argv)
