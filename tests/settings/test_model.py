"""Every setting by option, by variable and by default, and the error for every invalid value."""

from __future__ import annotations

import attrs
import pytest

from ascend_runner.engines import registry as engines
from ascend_runner.errors import SettingsError
from ascend_runner.frameworks import registry as frameworks
from ascend_runner.settings import command_line, model
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import OPTIONS, REMOVED

DEFAULTS = attrs.asdict(Settings(), recurse=False)
PATH = "a path"
STAGE = "SRC:DST, two absolute paths without colons"
HOSTS = "distinct host names, optionally with their numbers of devices, such as a,b or a:8,b:8"
ABOVE_0 = "a number of seconds above 0, or a duration such as 15m, 72h or 7d"
TEN_YEARS = "a duration of at most 10 years"
SECONDS = "a number of seconds, 0 or more, or a duration such as 15m, 72h or 7d"
STATUSES = "exit statuses from 1 to 255 and names of signals, such as 2,SIGSEGV"
NUMBER = "a whole number from 0 to 999999"
NAME = "letters, digits and any of _.+@-, beginning with a letter, a digit or _"
COUNT = "a whole number from 1 to 999999"
DEVICES = "a whole number from 1 to 65536"
SIZE = "a size with a unit, such as 500M or 1.5G, or 0 for no limit"
RANKS = "'all', 'none' or ranks such as '0,8-15'"
ERROR = "a valid regular expression: "
GROUPS = "a regular expression with one or more of the named groups step, seconds, ms, hardware, e2e and no others"
FIXED = "a regular expression with at least 3 fixed characters in a row outside of groups, such as 'step time'"
RATIO = "a number above 0 and below 1, such as 0.3"
WITH_VARIABLE = [
    ("rank_table", "/a", "/a"),
    ("rank_table_timeout", "0.5", 0.5),
    ("no_table_checks", "1", True),
    ("chip", "910B", "910B"),
    ("nproc_per_node", "8", 8),
    ("nnodes", "2", 2),
    ("min_nodes", "1", 1),
    ("node_rank", "0", 0),
    ("master_addr", "10.0.0.1", "10.0.0.1"),
    ("master_port", "29501", 29501),
    ("pod_name", "job-worker-0", "job-worker-0"),
    ("server_id", "10.0.0.1", "10.0.0.1"),
    ("link", "require", "require"),
    ("link_port", "20000", 20000),
    ("link_timeout", "5m", 300.0),
    ("node_timeout", "2m", 120.0),
    ("framework", "mindspore-cluster", "mindspore-cluster"),
    ("isolate_devices", "1", True),
    ("conda_env", "py39", "py39"),
    ("launcher", "torchrun", "torchrun"),
    ("job_name", "bert-2", "bert-2"),
    ("job_name", "modelarts-job-9f5a6b9e-1c2d@v1.2+a_训练", "modelarts-job-9f5a6b9e-1c2d@v1.2+a_训练"),
    ("log_dir", "logs", "logs"),
    ("workdir", "inherit", "inherit"),
    ("bind", "numa", "numa"),
    ("hosts", "a,b.job:8", (("a", 0), ("b.job", 8))),
    ("grace", "0", 0.0),
    ("stop_signal", "INT", "INT"),
    ("hang_timeout", "600", 600.0),
    ("hang_timeout", "auto", "auto"),
    ("hang_timeout", "off", "off"),
    ("hang_action", "warn", "warn"),
    ("perf_pattern", r"step (?P<step>\d+)", r"step (?P<step>\d+)"),
    ("perf_threshold", "0.8", 0.8),
    ("perf_drop", "3e-1", 0.3),
    ("perf_action", "stop", "stop"),
    ("checkpoint_signal", "USR2", "USR2"),
    ("checkpoint_grace", "5m", 300.0),
    ("time_limit", "72h", 259200.0),
    ("max_restarts", "0", 0),
    ("restart_on", "3,sigkill, SEGV", frozenset({3, 137, 139})),
    ("no_restart_on", "none", frozenset()),
    ("exit_verdict", "yes", True),
    ("restart_delay", "2m", 120.0),
    ("catalogue", "site.toml", "site.toml"),
    ("checkpoint_dir", "ckpt", "ckpt"),
    ("stage", "/nfs/a:/cache/a", (("/nfs/a", "/cache/a"),)),
    ("hold", "4h", 14400.0),
    ("linger", "1m", 60.0),
    ("hook", "before-exit=cp -r a b=c", (("before-exit", "cp -r a b=c"),)),
    ("precheck", "stop", "stop"),
    ("inspect", "checkpoint", "checkpoint"),
    ("log_max_size", "500M", 500 << 20),
    ("log_max_size", "0", 0),
    ("log_max_size", "700B", 700),
    ("log_max_size", "1.5 GiB", 3 << 29),
    ("log_max_size", "2tb", 2 << 40),
    ("progress_bars", "pass", "pass"),
    ("html", "always", "always"),
    ("timestamps", "1", True),
    ("summary", "10m", 600.0),
    ("color", "always", "always"),
    ("stdin", "3", 3),
    ("stdin", "none", None),
    ("log_runs", "5", 5),
    ("console", "0,8-15", frozenset({0, *range(8, 16)})),
]
WITHOUT_VARIABLE = {"dry_run", "check", "json", "quiet", "verbose", "simulate"}
BAD = [
    ("rank_table", "a\0b", PATH),
    ("rank_table_timeout", "soon", SECONDS),
    ("rank_table_timeout", "-1", SECONDS),
    ("rank_table_timeout", "nan", SECONDS),
    ("rank_table_timeout", "inf", TEN_YEARS),
    ("nproc_per_node", "0", DEVICES),
    ("nproc_per_node", "65537", DEVICES),
    ("nproc_per_node", "-8", DEVICES),
    ("nproc_per_node", "8.0", DEVICES),
    ("nproc_per_node", "1_0", DEVICES),
    ("nproc_per_node", "٨", DEVICES),
    ("nproc_per_node", "1" * 5000, DEVICES),
    ("nnodes", "0", COUNT),
    ("node_rank", "-1", NUMBER),
    ("master_addr", "10.0.0.1 10.0.0.2", "a host name or an address"),
    ("master_port", "http", COUNT),
    ("framework", "pytorch", f"one of {', '.join(frameworks.NAMES)}"),
    ("pod_name", "a b", "a name without spaces"),
    ("server_id", "a\nb", "a name or an address without spaces"),
    *(("job_name", name, NAME) for name in ("../a", "..", "a b", "a\n", "<b>", "x$(id)", "a;b", "-a", "a/b")),
    ("stop_signal", "KILL", "one of TERM, INT"),
    ("precheck", "checkpoint", "one of off, warn, stop"),
    ("inspect", "restart", "one of off, warn, checkpoint, stop"),
    ("isolate_devices", "perhaps", "1 or 0"),
    ("conda_env", "a\nb", "a name or a directory, without spaces"),
    ("launcher", "accelerate", f"one of {', '.join(engines.NAMES)}"),
    ("log_dir", "a\0b", PATH),
    ("log_dir", "a\0b", PATH),
    ("workdir", "a\0b", "'device', 'inherit' or a directory"),
    ("bind", "socket", "one of none, cores, numa"),
    ("hosts", "a,,b", HOSTS),
    ("hosts", "a:x", HOSTS),
    ("hosts", "a,a", HOSTS),
    ("hosts", "a b", HOSTS),
    ("color", "yes", "one of auto, always, never"),
    ("stdin", "all", "'none' or a rank, 0 or more"),
    ("grace", "15x", SECONDS),
    ("grace", "-0.1", SECONDS),
    ("chip", "A2", "one of 910, 910B, A3, 310P, 950"),
    ("no_table_checks", "perhaps", "1 or 0"),
    ("hang_timeout", "0", f"'auto', 'off' or {ABOVE_0}"),
    ("hang_timeout", "3651d", f"'auto', 'off' or {TEN_YEARS}"),
    ("hang_timeout", "never", f"'auto', 'off' or {ABOVE_0}"),
    ("hang_action", "ask", "one of warn, restart, stop"),
    ("perf_pattern", "step (?P<step>", ERROR + "missing ), unterminated subpattern at position 5"),
    ("perf_pattern", r"took (?P<ms>\d{99999999999})", ERROR + "the repetition number is too large"),
    ("perf_pattern", r"step (\d+)", GROUPS),
    ("perf_pattern", r"step (?P<number>\d+)", GROUPS),
    ("perf_pattern", r"(?P<step>\d+) s", FIXED),
    ("perf_pattern", r"time (?P<ms>\d+)|(?P<step>\d+)", FIXED),
    ("perf_pattern", r"time (?P<ms>\d+)" + 1000 * " ", "a regular expression of at most 1000 characters"),
    ("perf_threshold", "0", RATIO),
    ("perf_threshold", "nan", RATIO),
    ("perf_drop", "30%", RATIO),
    ("perf_drop", "1", RATIO),
    ("perf_action", "kill", "one of warn, restart, stop"),
    ("checkpoint_signal", "HUP", "one of USR1, USR2, TERM, none"),
    ("checkpoint_grace", "-1", SECONDS),
    ("time_limit", "0", ABOVE_0),
    ("time_limit", "1h30m", ABOVE_0),
    ("time_limit", "99999999999h", TEN_YEARS),
    ("max_restarts", "-1", NUMBER),
    ("max_restarts", "9" * 20, NUMBER),
    ("min_nodes", "0", COUNT),
    ("restart_on", "0", STATUSES),
    ("restart_on", "256", STATUSES),
    ("no_restart_on", "2,,3", STATUSES),
    ("no_restart_on", "SIGWHAT", STATUSES),
    ("restart_delay", "soon", SECONDS),
    ("catalogue", "a\0b", PATH),
    ("checkpoint_dir", "a\0b", PATH),
    *(("stage", text, STAGE) for text in ("/a", "a:/b", "/a:b", "/a:", ":/b", "/a:/b:c")),
    ("hold", "4 hours", SECONDS),
    ("hold", "-1", SECONDS),
    ("linger", "forever", SECONDS),
    ("log_max_size", "500", SIZE),
    ("log_max_size", "5Mi", SIZE),
    ("log_max_size", "-1", SIZE),
    ("log_max_size", "G", SIZE),
    ("log_max_size", "٨M", SIZE),
    ("console", "some", RANKS),
    ("console", "0,", RANKS),
    ("console", "-1", RANKS),
    ("console", "3-", RANKS),
    ("console", "3-1", RANKS),
    ("console", "0;1", RANKS),
    ("console", "0-9999999999", RANKS),
    ("timestamps", "perhaps", "1 or 0"),
]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return "ASCEND_RUNNER_" + name.upper()


def test_defaults() -> None:
    """Without options and variables, each setting is the default of its option."""
    assert attrs.asdict(Settings(), recurse=False) == attrs.asdict(model.decode({}, {}), recurse=False)
    assert {option.name: option.default for option in OPTIONS} == DEFAULTS


@pytest.mark.parametrize(("name", "text", "value"), WITH_VARIABLE)
def test_flag_sets_its_option_and_no_other(name: str, text: str, value: object) -> None:
    """An option sets its own setting only."""
    assert {**DEFAULTS, name: value} == attrs.asdict(model.decode({name: text}, {}), recurse=False)


@pytest.mark.parametrize(("name", "text", "value"), WITH_VARIABLE)
def test_variable_sets_what_its_flag_sets(name: str, text: str, value: object) -> None:
    """The variable ASCEND_RUNNER_<NAME> accepts the same values as the option."""
    assert {**DEFAULTS, name: value} == attrs.asdict(model.decode({}, {_variable(name): text}), recurse=False)


@pytest.mark.parametrize("name", sorted(WITHOUT_VARIABLE - {"json", "simulate"}))
def test_switches_of_one_run_have_no_variable(name: str) -> None:
    """Options that concern a single run cannot be set by a variable."""
    assert {**DEFAULTS, name: True} == attrs.asdict(model.decode({name: "1"}, {}), recurse=False)
    assert DEFAULTS == attrs.asdict(model.decode({}, {_variable(name): "1"}), recurse=False)


@pytest.mark.parametrize("environ", [{}, {_variable("hang_timeout"): "60", _variable("perf_drop"): "0.3"}])
@pytest.mark.parametrize("name", ["hang_action", "perf_action"])
def test_restart_requires_restarts(name: str, environ: dict[str, str]) -> None:
    """Without --max-restarts, which is 0 by default, --hang-action restart could only be ignored."""
    assert model.decode({name: "restart", "max_restarts": "1", "perf_drop": "0.3"}, environ)
    with pytest.raises(SettingsError) as refused:
        model.decode({name: "restart"}, environ)

    assert f"--{name.replace('_', '-')} restart requires --max-restarts" == str(refused.value)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"checkpoint_signal": "none", "checkpoint_grace": "300"},
            "--checkpoint-grace and --checkpoint-signal none cannot be used together",
        ),
        (
            {"checkpoint_signal": "none", "inspect": "checkpoint"},
            "--inspect checkpoint and --checkpoint-signal none cannot be used together",
        ),
        (
            {"checkpoint_signal": "TERM"},
            "--checkpoint-signal TERM requires --checkpoint-grace, because without it SIGTERM stops the job at once",
        ),
        (
            {"checkpoint_grace": "5m", "time_limit": "300"},
            "--checkpoint-grace (300 s) must be shorter than --time-limit (300 s)",
        ),
    ],
)
def test_checkpoint_options_that_contradict_each_other(flags: dict[str, str], sentence: str) -> None:
    """A checkpoint that could never be asked for, or not in time, is an error."""
    with pytest.raises(SettingsError) as error:
        model.decode(flags, {})

    assert sentence == str(error.value)


@pytest.mark.parametrize(
    ("flags", "sentences"),
    [
        ({"hang_action": "stop", "hang_timeout": "off"}, ["--hang-action has no effect with --hang-timeout off"]),
        ({"hang_action": "stop"}, []),
        (
            {"perf_action": "stop"},
            ["--perf-action has no effect without --perf-threshold, --perf-drop or --perf-pattern"],
        ),
        (
            {"restart_delay": "0"},
            ["--restart-delay has no effect without --max-restarts"],
        ),
        ({"restart_on": "7"}, ["--restart-on has no effect without --max-restarts or --exit-verdict"]),
        ({"no_restart_on": "7"}, ["--no-restart-on has no effect without --max-restarts or --exit-verdict"]),
        ({"no_restart_on": "7", "exit_verdict": "1"}, []),
        ({"restart_on": "7", "restart_delay": "0", "max_restarts": "1"}, []),
    ],
)
def test_options_without_effect(flags: dict[str, str], sentences: list[str]) -> None:
    """An option that only changes what another one does is reported if that one is not set."""
    assert sentences == list(model.decode(flags, {}).without_effect())


@pytest.mark.parametrize(("name", "word"), [("checkpoint_signal", "USR2"), ("stop_signal", "INT")])
def test_signal_has_two_spellings(name: str, word: str) -> None:
    """The name of a signal may begin with SIG, as it may in lists of exit statuses."""
    assert word == getattr(model.decode({name: f"SIG{word}"}, {}), name)


def test_option_that_is_repeated() -> None:
    """Each value of a repeated option counts; a variable has one in each line, and the option overrides all of them."""
    lines = {"ASCEND_RUNNER_STAGE": "/a:/x\n/b:/y/"}
    given = command_line.parse(["--stage", "/c:/z", "--stage=/d,e:/w", "true"]).values

    assert (("/a", "/x"), ("/b", "/y")) == model.decode({}, lines).stage
    assert (("/c", "/z"), ("/d,e", "/w")) == model.decode(given, lines).stage


def test_json_requires_check() -> None:
    """--json selects the format of --check, and is an error without it."""
    assert model.decode({"check": "1", "json": "1"}, {}).json

    with pytest.raises(SettingsError, match=r"^--json requires --check$"):
        model.decode({"json": "1"}, {})


def test_status_cannot_be_in_both_lists() -> None:
    """A failure after which the job is to be restarted, and is not to be, is an error."""
    with pytest.raises(SettingsError, match=r"^--restart-on and --no-restart-on both contain 139$"):
        model.decode({"restart_on": "139"}, {"ASCEND_RUNNER_NO_RESTART_ON": "2,SIGSEGV"})


def test_none_binds_nothing() -> None:
    """--bind none overrides a variable that binds."""
    assert model.decode({"bind": "none"}, {"ASCEND_RUNNER_BIND": "cores"}).bind is None


def test_every_option_is_tested_here() -> None:
    """A new option is added to the tables above."""
    assert WITHOUT_VARIABLE == {option.name for option in OPTIONS if not option.variable}
    assert {name for name, _text, _value in WITH_VARIABLE} == {option.name for option in OPTIONS if option.variable}


def test_option_that_determines_the_ranks_overrides_the_other_variable() -> None:
    """--nproc-per-node and --rank-table override each other's variable, and neither overrides the other option."""
    environ = {"ASCEND_RUNNER_RANK_TABLE": "/a", "ASCEND_RUNNER_NPROC_PER_NODE": "2"}
    flags = {"nproc_per_node": "8", "rank_table": "/b"}
    found = [model.decode(given, environ) for given in ({"nproc_per_node": "8"}, {"rank_table": "/b"}, flags, {})]

    assert [(None, 8), ("/b", None), ("/b", 8), ("/a", 2)] == [(one.rank_table, one.nproc_per_node) for one in found]


def test_option_overrides_variable() -> None:
    """An option overrides its variable, which an image may have set."""
    assert 3.0 == model.decode({"grace": "3"}, {"ASCEND_RUNNER_GRACE": "4"}).grace


def test_option_hides_an_invalid_variable() -> None:
    """The variable of an option that is given is not read."""
    assert 3.0 == model.decode({"grace": "3"}, {"ASCEND_RUNNER_GRACE": "long"}).grace


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("15m", 900), ("72h", 259200), ("7d", 604800), ("1.5m", 90)])
def test_duration(text: str, seconds: float) -> None:
    """A duration is a number of seconds, or of minutes, hours or days by its unit."""
    assert seconds == model.decode({"grace": text}, {}).grace


def test_empty_variable_is_not_set() -> None:
    """An empty variable is not set: some platforms cannot unset one."""
    settings = model.decode({}, {_variable(name): "" for name, _text, _value in WITH_VARIABLE})

    assert DEFAULTS == attrs.asdict(settings, recurse=False)


def _quoted(name: str, text: str) -> str:
    """Return a value as an error shows it: a regular expression as it was written, others as in Python."""
    return f"'{text}'" if name == "perf_pattern" else repr(text)


@pytest.mark.parametrize(("name", "text", "expected"), [*BAD, ("rank_table", "", PATH), ("log_dir", "", PATH)])
def test_bad_flag_is_named(name: str, text: str, expected: str) -> None:
    """The error names the option, its value, and what is expected."""
    with pytest.raises(SettingsError) as caught:
        model.decode({name: text}, {})

    assert f"invalid value {_quoted(name, text)} for {_flag(name)}: expected {expected}" == str(caught.value)
    assert 125 == caught.value.exit_status


@pytest.mark.parametrize(("name", "text", "expected"), BAD)
def test_bad_variable_is_named(name: str, text: str, expected: str) -> None:
    """The error names the variable if the value came from it."""
    with pytest.raises(SettingsError) as caught:
        model.decode({}, {_variable(name): text})

    assert f"invalid value {_quoted(name, text)} for {_variable(name)}: expected {expected}" == str(caught.value)


def test_quiet_and_verbose_contradict() -> None:
    """--quiet and --verbose together are an error."""
    with pytest.raises(SettingsError) as caught:
        model.decode({"quiet": "1", "verbose": "1"}, {})

    assert "--quiet and --verbose cannot be used together" == str(caught.value)


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
    """--console accepts all, none, or a list of ranks and ranges."""
    assert ranks == model.decode({"console": text}, {}).console


@pytest.mark.parametrize(
    ("text", "is_on"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("False", False), ("no", False)],
)
def test_switch_by_variable_takes_what_people_write(text: str, *, is_on: bool) -> None:
    """The variable of a switch accepts 1 and 0 and their usual synonyms."""
    assert is_on is model.decode({}, {"ASCEND_RUNNER_TIMESTAMPS": text}).timestamps


@pytest.mark.parametrize("text", ["device", "inherit", "/data/work", "work"])
def test_workdir_takes_two_words_or_a_folder(text: str) -> None:
    """--workdir accepts two words; anything else is a directory."""
    assert text == model.decode({"workdir": text}, {}).workdir


@pytest.mark.parametrize("name", REMOVED)
def test_variable_of_a_removed_option_is_refused(name: str) -> None:
    """It would have no effect, so the error says what to do instead; an empty one is not set."""
    variable = f"ASCEND_RUNNER_{name.upper()}"
    model.decode({}, {variable: ""})
    with pytest.raises(SettingsError) as caught:
        model.decode({}, {variable: "1"})

    assert f"variable {variable} has been removed: {REMOVED[name]}" == str(caught.value)
