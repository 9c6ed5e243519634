"""Any environment gives a node and its ranks, or a SettingsError."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.env_patch import LaunchContext
from ascend_runner.frameworks.registry import FRAMEWORKS, patch_environment
from ascend_runner.platforms import detect
from ascend_runner.platforms import places as platform_table
from ascend_runner.platforms.detect import find_node
from ascend_runner.platforms.registry import PLATFORMS
from tests.platforms import platform_cases

NAMES = sorted(
    {name for spec in PLATFORMS for name in spec.detected_by}.union(
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
    """Any environment is judged, except one with a malformed TF_CONFIG."""
    with suppress(SettingsError):
        found = detect.find(environ)

        assert found is None or ((found.rank_id or 0) >= 0 and (found.local_rank or 0) >= 0)


@given(ENVIRONMENTS, st.integers(1, 3), st.sampled_from([*FRAMEWORKS]))
def test_node_and_its_ranks(environ: dict[str, str], nproc: int, framework: str) -> None:
    """A node's rank is less than the number of nodes, and its ranks get an environment."""
    with suppress(SettingsError):
        node = find_node(environ)

        assert 0 <= node.node_rank < node.nnodes
        assert len(node.hosts) in {0, node.nnodes}
        assert node.master_addr or platform_table.problem_without_table(node)

        patch = patch_environment(
            LaunchContext(
                framework=framework,
                node=node,
                rank_ids=node.rank_ids(nproc),
                rank_size=nproc * node.nnodes,
                environ=environ,
            )
        )

        assert nproc == len(patch.ranks)
        assert "TORCHELASTIC_USE_AGENT_STORE" not in patch.environments_of_ranks(environ)[nproc - 1]


@given(st.sampled_from(platform_cases.names("node")), st.sampled_from(NAMES), VALUES)
def test_platform_with_one_variable_broken(name: str, broken: str, value: str) -> None:
    """One invalid variable among valid ones gives a node or an error as well."""
    case = platform_cases.load(name)
    with suppress(SettingsError):
        node = find_node({**case.variables, broken: value}, case.overrides)

        assert 0 <= node.node_rank < node.nnodes
