"""Every knob by flag, by variable and by default; and the sentence for every value that cannot be used."""

from __future__ import annotations

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks import decide
from ascend_runner.job import settings
from ascend_runner.job.settings import FRAMEWORKS, LAUNCHERS, OPTIONS, Settings
from ascend_runner.launchers import engines

DEFAULTS = Settings()._asdict()
PATH = "a path"
SECONDS = "a number of seconds, 0 or more"
COUNT = "a whole number, 1 or more"
SIZE = "a size such as 500M or 2G (0: no limit)"
RANKS = "'all', 'none' or ranks such as '0,8-15'"
WITH_VARIABLE = [
    ("rank_table", "/a", "/a"),
    ("rank_table_timeout", "0.5", 0.5),
    ("no_table_checks", "1", True),
    ("chip", "910B", "910B"),
    ("nproc_per_node", "8", 8),
    ("nnodes", "2", 2),
    ("node_rank", "0", 0),
    ("master_addr", "10.0.0.1", "10.0.0.1"),
    ("master_port", "29501", 29501),
    ("framework", "mindspore-cluster", "mindspore-cluster"),
    ("isolate_devices", "1", True),
    ("conda_env", "py39", "py39"),
    ("launcher", "torchrun", "torchrun"),
    ("mpi_hostfile", "/tmp/hosts", "/tmp/hosts"),
    ("mpich_hostfile", "hosts", "hosts"),
    ("deepspeed_hostfile", "hosts", "hosts"),
    ("log_dir", "logs", "logs"),
    ("workdir", "inherit", "inherit"),
    ("bind", "numa", "numa"),
    ("grace", "0", 0.0),
    ("hang_timeout", "600", 600.0),
    ("log_max_size", "500M", 500 << 20),
    ("log_backups", "0", 0),
    ("console", "0,8-15", frozenset({0, *range(8, 16)})),
    ("no_prefix", "1", True),
]
BAD = [
    ("rank_table", "a\0b", PATH),
    ("rank_table_timeout", "soon", SECONDS),
    ("rank_table_timeout", "-1", SECONDS),
    ("rank_table_timeout", "nan", SECONDS),
    ("rank_table_timeout", "inf", SECONDS),
    ("nproc_per_node", "0", COUNT),
    ("nproc_per_node", "-8", COUNT),
    ("nproc_per_node", "8.0", COUNT),
    ("nproc_per_node", "1_0", COUNT),
    ("nproc_per_node", "٨", COUNT),
    ("nproc_per_node", "1" * 5000, COUNT),
    ("nnodes", "0", COUNT),
    ("node_rank", "-1", "a whole number, 0 or more"),
    ("master_addr", "10.0.0.1 10.0.0.2", "a name or an address"),
    ("master_port", "http", COUNT),
    ("framework", "pytorch", "one of auto, mindspore, mindspore-cluster, torch, tensorflow, none"),
    ("isolate_devices", "perhaps", "1 or 0"),
    ("conda_env", "a\nb", "a name or a folder, without spaces"),
    (
        "launcher",
        "accelerate",
        "one of direct, torchrun, torch.distributed.launch, init-method, mpirun, deepspeed, msrun",
    ),
    ("mpi_hostfile", "a\0b", PATH),
    ("log_dir", "a\0b", PATH),
    ("workdir", "a\0b", "'device', 'inherit' or a folder"),
    ("bind", "socket", "one of none, cores, numa"),
    ("grace", "15s", SECONDS),
    ("grace", "-0.1", SECONDS),
    ("chip", "A2", "one of 910, 910B, A3, 310P, 950"),
    ("no_table_checks", "perhaps", "1 or 0"),
    ("hang_timeout", "0", "a number of seconds above 0"),
    ("hang_timeout", "never", SECONDS),
    ("log_max_size", "500 MB", SIZE),
    ("log_max_size", "-1", SIZE),
    ("log_max_size", "G", SIZE),
    ("log_backups", "-1", "a whole number, 0 or more"),
    ("console", "some", RANKS),
    ("console", "0,", RANKS),
    ("console", "-1", RANKS),
    ("console", "3-", RANKS),
    ("console", "3-1", RANKS),
    ("console", "0;1", RANKS),
    ("console", "0-9999999999", RANKS),
    ("no_prefix", "perhaps", "1 or 0"),
]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return "ASCEND_RUNNER_" + name.upper()


def test_defaults() -> None:
    """Where nothing is set, the job waits for a table as long as HCCL does, and gives ranks 15 s to end."""
    expected = Settings(
        rank_table=None,
        rank_table_timeout=1800.0,
        no_table_checks=False,
        chip=None,
        nproc_per_node=None,
        nnodes=None,
        node_rank=None,
        master_addr=None,
        master_port=None,
        framework="auto",
        isolate_devices=False,
        conda_env=None,
        launcher="direct",
        mpi_hostfile=None,
        mpich_hostfile=None,
        deepspeed_hostfile=None,
        log_dir=None,
        workdir=None,
        bind=None,
        grace=15.0,
        hang_timeout=None,
        log_max_size=0,
        log_backups=3,
        console=None,
        no_prefix=False,
        dry_run=False,
        check=False,
        json=False,
        quiet=False,
        verbose=False,
    )

    assert expected == settings.decode({}, {})


@pytest.mark.parametrize(("name", "text", "value"), WITH_VARIABLE)
def test_flag_sets_its_option_and_no_other(name: str, text: str, value: object) -> None:
    """A flag decides its own field."""
    assert {**DEFAULTS, name: value} == settings.decode({name: text}, {})._asdict()


@pytest.mark.parametrize(("name", "text", "value"), WITH_VARIABLE)
def test_variable_sets_what_its_flag_sets(name: str, text: str, value: object) -> None:
    """Each of these has a variable, ASCEND_RUNNER_ and its name, that takes what the flag takes."""
    assert {**DEFAULTS, name: value} == settings.decode({}, {_variable(name): text})._asdict()


@pytest.mark.parametrize("name", ["dry_run", "check", "quiet", "verbose"])
def test_switches_of_one_run_have_no_variable(name: str) -> None:
    """What is asked of one run only cannot be set for all runs."""
    assert {**DEFAULTS, name: True} == settings.decode({name: "1"}, {})._asdict()
    assert Settings() == settings.decode({}, {_variable(name): "1"})


def test_json_is_a_form_of_the_check() -> None:
    """--json says how --check prints, and nothing without it."""
    assert settings.decode({"check": "1", "json": "1"}, {}).json
    with pytest.raises(SettingsError, match=r"^--json is without --check, expected both"):
        settings.decode({"json": "1"}, {})


def test_none_binds_nothing() -> None:
    """--bind none beats a variable that binds."""
    assert settings.decode({"bind": "none"}, {"ASCEND_RUNNER_BIND": "cores"}).bind is None


def test_every_option_is_tested_here() -> None:
    """A new option is added to the tables above."""
    without_variable = {"dry_run", "check", "json", "quiet", "verbose"}

    assert {name for name, _text, _value in WITH_VARIABLE} | without_variable == {option.name for option in OPTIONS}
    assert without_variable == {option.name for option in OPTIONS if not option.has_variable}
    assert {option.name for option in OPTIONS} == set(Settings._fields)
    assert [(_flag(option.name), _variable(option.name)) for option in OPTIONS] == [
        (option.flag, option.variable) for option in OPTIONS
    ]


def test_names_are_those_of_the_rooms_that_know_them() -> None:
    """The settings spell them out, so that reading the command line imports neither room."""
    assert FRAMEWORKS == tuple(decide.FRAMEWORKS)
    assert LAUNCHERS == engines.NAMES


def test_flag_beats_variable() -> None:
    """A flag is closer to the user than a variable, which may come from the image."""
    assert settings.decode({"grace": "3"}, {"ASCEND_RUNNER_GRACE": "4"}).grace == 3.0


def test_flag_silences_a_bad_variable() -> None:
    """What is not used need not be right."""
    assert settings.decode({"grace": "3"}, {"ASCEND_RUNNER_GRACE": "long"}).grace == 3.0


def test_empty_variable_is_not_set() -> None:
    """A platform that cannot unset a variable can empty it."""
    assert Settings() == settings.decode({}, {_variable(name): "" for name, _text, _value in WITH_VARIABLE})


@pytest.mark.parametrize(("name", "text", "expected"), [*BAD, ("rank_table", "", PATH), ("log_dir", "", PATH)])
def test_bad_flag_is_named(name: str, text: str, expected: str) -> None:
    """The sentence names the flag, what it is, and what was expected."""
    with pytest.raises(SettingsError) as caught:
        settings.decode({name: text}, {})

    assert f"{_flag(name)} is {text!r}, expected {expected}" == str(caught.value)
    assert caught.value.exit_status == 125


@pytest.mark.parametrize(("name", "text", "expected"), BAD)
def test_bad_variable_is_named(name: str, text: str, expected: str) -> None:
    """The sentence names the variable, not the flag that the user has not written."""
    with pytest.raises(SettingsError) as caught:
        settings.decode({}, {_variable(name): text})

    assert f"{_variable(name)} is {text!r}, expected {expected}" == str(caught.value)


def test_quiet_and_verbose_contradict() -> None:
    """Two wishes that cannot both be met are refused."""
    with pytest.raises(SettingsError) as caught:
        settings.decode({"quiet": "1", "verbose": "1"}, {})

    assert "--quiet and --verbose contradict each other, expected one of them" == str(caught.value)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("all", None),
        ("none", frozenset()),
        ("0", frozenset({0})),
        ("2-2", frozenset({2})),
        ("3,0-1,1", frozenset({0, 1, 3})),
    ],
)
def test_console_takes_ranks(text: str, ranks: frozenset[int] | None) -> None:
    """All, none, or a list of ranks and runs of ranks."""
    assert ranks == settings.decode({"console": text}, {}).console


@pytest.mark.parametrize(
    ("text", "is_on"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("False", False), ("no", False)],
)
def test_switch_by_variable_takes_what_people_write(text: str, *, is_on: bool) -> None:
    """1 and 0, and their usual other names."""
    assert is_on is settings.decode({}, {"ASCEND_RUNNER_NO_PREFIX": text}).no_prefix


@pytest.mark.parametrize("text", ["device", "inherit", "/data/work", "work"])
def test_workdir_takes_two_words_or_a_folder(text: str) -> None:
    """Any other word than the two is a folder."""
    assert text == settings.decode({"workdir": text}, {}).workdir
