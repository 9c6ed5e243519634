"""The Octopus platform, which runs its training on ModelArts' variables, with or without ModelArts beneath.

Source: its guide to algorithm files.
"""

from __future__ import annotations

from ascend_runner.annotations import Final

from . import modelarts

PORT: Final = 6789  # what the guide takes where VC_WORKER_PORT is not set

CONTRACT: Final = modelarts.CONTRACT._replace(port=PORT)
