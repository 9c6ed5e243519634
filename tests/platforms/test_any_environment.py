"""Whatever variables hold: a node and its ranks, or a SettingsError; nothing else."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.decide import FRAMEWORKS, decide
from ascend_runner.frameworks.situation import Situation
from ascend_runner.platforms import agree, single
from ascend_runner.platforms.find import PLATFORMS, find
from tests.platforms import platform_cases

NAMES = sorted(
    {name for _, _, witness in PLATFORMS for name in witness}.union(
        *(platform_cases.load(name).variables for name in platform_cases.names("about"))
    )
)
VALUES = st.one_of(
    st.sampled_from(["", "0", "1", "2", "8", "a,b", "n[1-2]", "true", "{}", "x-master-0"]),
    st.text('a0,:[]-{}".é\n ', max_size=8),
)
ENVIRONMENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=12)


@given(ENVIRONMENTS)
def test_single(environ: dict[str, str]) -> None:
    """Seeing whether the command runs once never breaks, but for a TF_CONFIG that cannot be read."""
    with suppress(SettingsError):
        found = single.find(environ)

        assert found is None or ((found.rank_id or 0) >= 0 and (found.local_rank or 0) >= 0)


@given(ENVIRONMENTS, st.integers(1, 3), st.sampled_from([*FRAMEWORKS]))
def test_node_and_its_ranks(environ: dict[str, str], nproc: int, framework: str) -> None:
    """A node that is found is one of its nodes, and its ranks find an environment."""
    with suppress(SettingsError):
        node = find(environ)

        assert 0 <= node.node_rank < node.nnodes
        assert len(node.hosts) in {0, node.nnodes}
        assert node.master_addr or agree.without_table(node)

        decided = decide(framework, Situation(node, node.rank_ids(nproc), nproc * node.nnodes, None, environ))

        assert nproc == len(decided.ranks)
        assert "TORCHELASTIC_USE_AGENT_STORE" not in decided.environment_of(nproc - 1, environ)


@given(st.sampled_from(platform_cases.names("node")), st.sampled_from(NAMES), VALUES)
def test_platform_with_one_variable_broken(name: str, broken: str, value: str) -> None:
    """One wrong variable among right ones is a node or a sentence as well."""
    case = platform_cases.load(name)
    with suppress(SettingsError):
        node = find({**case.variables, broken: value}, case.said)

        assert 0 <= node.node_rank < node.nnodes
