"""Options stop where the training command begins; errors and suggestions."""

from __future__ import annotations

import pytest

from ascend_runner.errors import COMMAND_NOT_FOUND, RUNNER_FAILED, CommandError, SettingsError
from ascend_runner.settings import command_line
from ascend_runner.settings.command_line import CommandLine
from ascend_runner.settings.options import FOREIGN, OPTIONS, REMOVED, with_dashes


@pytest.mark.parametrize(
    ("argv", "values", "command"),
    [
        ([], {}, ()),
        (["python", "train.py"], {}, ("python", "train.py")),
        (["--grace", "5", "python"], {"grace": "5"}, ("python",)),
        (["--grace=5", "python"], {"grace": "5"}, ("python",)),
        (["--nproc_per_node=2", "python"], {"nproc_per_node": "2"}, ("python",)),
        (["--grace", "-5", "python"], {"grace": "-5"}, ("python",)),
        (["--rank-table=a=b", "python"], {"rank_table": "a=b"}, ("python",)),
        (["--rank-table=", "python"], {"rank_table": ""}, ("python",)),
        (["--quiet", "--timestamps", "python"], {"quiet": "1", "timestamps": "1"}, ("python",)),
        (["--grace", "5", "--grace", "6", "python"], {"grace": "6"}, ("python",)),
        (["--", "--odd-name", "x"], {}, ("--odd-name", "x")),
        (["python", "--grace", "5", "--", "--help"], {}, ("python", "--grace", "5", "--", "--help")),
    ],
)
def test_options_stop_at_the_command(argv: list[str], values: dict[str, str], command: tuple[str, ...]) -> None:
    """The first non-option argument and all that follow belong to the command."""
    assert CommandLine(values=values, command=command) == command_line.parse(argv)


@pytest.mark.parametrize(
    ("argv", "subject"),
    [
        (["-h"], ""),
        (["--quiet", "--help", "--grace", "5", "python"], "--grace"),
        (["--help", "nodes"], "nodes"),
        (["-h", "nodes", "python"], "nodes"),
        (["--help=nodes"], "nodes"),
    ],
)
def test_request_for_help(argv: list[str], subject: str) -> None:
    """--help may be followed by a topic or an option."""
    assert CommandLine(help_on=subject) == command_line.parse(argv)


def test_request_for_the_version() -> None:
    """--version needs no command."""
    assert CommandLine(wants_version=True) == command_line.parse(["--version"])


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--nproc-per-nod", "8", "x"], "unknown option --nproc-per-nod (did you mean --nproc-per-node?)"),
        (["--grac=5", "x"], "unknown option --grac (did you mean --grace?)"),
        (["-n", "8", "x"], "unknown option -n (did you mean --nproc-per-node?)"),
        (["--worker_num=8", "x"], "unknown option --worker_num (did you mean --nproc-per-node?)"),
        (["--rdzv-backend=c10d", "x"], f"unknown option --rdzv-backend: {FOREIGN['--rdzv-backend']}"),
        (["--nproc_per_nod", "8", "x"], "unknown option --nproc_per_nod (did you mean --nproc-per-node?)"),
        (["-m", "train"], "unknown option -m (did you mean: ascend-runner python -m train?)"),
        (["--grace"], "option --grace requires a value (DURATION)"),
        (["--grace", "--quiet", "x"], "option --grace requires a value (DURATION)"),
        (["--timestamps=no", "x"], "option --timestamps does not take a value"),
    ],
)
def test_wrong_option_is_named(argv: list[str], sentence: str) -> None:
    """The error names the option; an abbreviation is unknown, and an option is never taken for a value."""
    with pytest.raises(SettingsError) as caught:
        command_line.parse(argv)

    assert sentence == str(caught.value)


@pytest.mark.parametrize("name", REMOVED)
def test_removed_option_says_what_to_do_instead(name: str) -> None:
    """An option of an earlier version is refused, with its replacement, in either spelling and with any value."""
    for argv in ([with_dashes(f"--{name}"), "1", "x"], [f"--{name}=1", "x"]):
        with pytest.raises(SettingsError) as caught:
            command_line.parse(argv)

        assert f"option {with_dashes(f'--{name}')} has been removed: {REMOVED[name]}" == str(caught.value)
        assert name not in {option.name for option in OPTIONS}


@pytest.mark.parametrize("flag", FOREIGN)
def test_option_of_another_launcher(flag: str) -> None:
    """It is unknown here, and the error has ours, which exists, or says why there is none."""
    with pytest.raises(SettingsError) as caught:
        command_line.parse([flag, "1", "x"])

    flags = {option.flag for option in OPTIONS}
    assert flag not in flags
    assert FOREIGN[flag] in flags or not FOREIGN[flag].startswith("-")
    assert FOREIGN[flag] in str(caught.value)


NAMES_ELSEWHERE = {  # all options of torchrun 2.15 and msrun 2.10, by a part of the answer; "": an option here too
    "--nnodes --nproc_per_node --max-restarts --log_dir --node-rank --master_addr --master_port": "",
    "-n -np --nproc --nprocs --worker_num --local_worker_num --num_processes": "did you mean --nproc-per-node?",
    "--rdzv-backend --rdzv_endpoint --rdzv-id --rdzv-conf": "there is no rendezvous; --nnodes, --node-rank and --mas",
    "--standalone": "not needed; without --nnodes and a platform, the job runs on this node alone",
    "-m --module": "did you mean: ascend-runner python -m 4?",
    "--no-python --run-path": "python train.py",
    "-r --redirects -t --tee --local-ranks-filter --tail_worker_log": "did you mean --console?",
    "--duplicate-stdout-filters --duplicate-stderr-filters": "ascend-job logs",
    "--shutdown-timeout": "did you mean --grace?",
    "--numa-binding --bind_core --bind_numa": "did you mean --bind?",
    "--virtual-local-rank": "did you mean --isolate-devices?",
    "--cluster_time_out": "did you mean --rank-table-timeout?",
    "--rank_table_file": "did you mean --rank-table?",
    "--join --monitor-interval --start-method --signals-to-handle --local-addr --use_env": "not needed",
    "--event-log-handler": "-events.jsonl",
    "--logs-specs": "--log-dir",
    "--worker_log_name": "--job-name and --log-dir",
    "--role": "there are no roles",
    "--sim_level --sim_rank_id": "MS_SIMULATION_LEVEL",
    "--print-completion": "ascend-job completion",
}


@pytest.mark.parametrize(("names", "answer"), NAMES_ELSEWHERE.items())
def test_options_of_torchrun_and_msrun(names: str, answer: str) -> None:
    """Each one is an option here, or its error has ours or says why there is none."""
    for name in names.split():
        if answer:
            with pytest.raises(SettingsError) as caught:
                command_line.parse([name, "4", "x"])

            assert f"unknown option {name}" in str(caught.value)
            assert answer in str(caught.value)
        else:
            assert ("x",) == command_line.parse([name, "4", "x"]).command


def test_second_pattern_is_refused() -> None:
    """--perf-pattern was repeatable; a second one would replace the first in silence."""
    with pytest.raises(SettingsError) as caught:
        command_line.parse(["--perf-pattern", "a", "--perf-pattern", "b", "x"])

    assert "--perf-pattern is given twice: write one expression, such as '(?:train|eval) step (?P<step>[0-9]+)'" == str(
        caught.value
    )


# --- The training command ---------------------------------------------------------------------------------------------

ASSIGNED = "the command begins with a variable assignment: use env"
HINT = "pass the program and its arguments as separate words, or use bash -c '...'"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            ["A=1", "python", "a.py"],
            f"{ASSIGNED} A=... COMMAND, or bash -c '...'",
        ),
        (["A_b="], f"{ASSIGNED} A_b=... COMMAND, or bash -c '...'"),
        (["cd x && python a.py"], f"the command is a shell command line, 'cd x && python a.py': {HINT}"),
        (["python a.py"], f"the command is a shell command line, 'python a.py': {HINT}"),
        (["/a/b && c"], f"the command is a shell command line, '/a/b && c': {HINT}"),
        (["a", "&&", "b"], "the command contains the shell operator '&&': use bash -c '...'"),
        (["a", "b", "||", "c"], "the command contains the shell operator '||': use bash -c '...'"),
    ],
)
def test_refused(command: list[str], sentence: str) -> None:
    """A command that needs a shell is refused, and the error names the way to use one."""
    with pytest.raises(CommandError) as caught:
        command_line.check(command)

    assert (sentence, RUNNER_FAILED) == (str(caught.value), caught.value.exit_status)


def test_empty_command() -> None:
    """An empty word is a command that is not found."""
    with pytest.raises(CommandError, match=r"^the command is empty$") as caught:
        command_line.check([""])

    assert COMMAND_NOT_FOUND == caught.value.exit_status


@pytest.mark.parametrize(
    "command",
    [
        ["python", "a.py", "A=1"],
        ["./A=1"],
        ["env", "A=1", "python", "a.py"],
        ["bash", "-c", "cd x && A=1 python a.py"],
        ["/my tools/run", "a b"],
        ["find", ".", "-exec", "ls", ";"],
        ["train", "--x=a && b"],
    ],
)
def test_not_refused(command: list[str]) -> None:
    """Arguments and paths may contain anything."""
    command_line.check(command)


# --- What the user probably meant -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["python", "train.py", "--nproc_per_node", "2", "--grace=3"], "--nproc-per-node, --grace"),
        (["bash", "train.sh", "--grace", "3"], "--grace"),
        (["python", "train.py", "--lr", "2"], ""),
        (["python", "-m", "ascend_runner", "--grace", "3", "true"], ""),
        (["torchrun", "--nproc_per_node", "2"], ""),
        (["python", "-m", "torch.distributed.run", "--nproc_per_node", "2"], ""),
    ],
)
def test_option_behind_the_command(command: list[str], flags: str) -> None:
    """Options of the runner behind a command are named; those of an engine or another runner are not."""
    sentence = command_line.misplaced_options(command)

    assert flags == sentence.partition(" is passed")[0].partition(" are passed")[0]


def test_script_without_python() -> None:
    """A script that cannot be executed needs a Python; another program does not."""
    assert " (did you mean: ascend-runner python train.py?)" == command_line.suggestion_for_script("train.py")
    assert "" == command_line.suggestion_for_script("train")
