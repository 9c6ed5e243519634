"""The Octopus platform, which uses ModelArts' variables, on ModelArts or on CCE.

Source: its guide to algorithm files.
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.platforms import modelarts

PORT: Final = 6789  # the guide's default for VC_WORKER_PORT

BY_INDEX: Final = attrs.evolve(modelarts.V2, name="Octopus", detected_by=("MA_NUM_HOSTS", "VC_TASK_INDEX"), port=PORT)
BY_DATASETS: Final = attrs.evolve(BY_INDEX, detected_by=("MA_NUM_HOSTS", "DATASET_MAP"))
