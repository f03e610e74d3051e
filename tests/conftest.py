"""How hard Hypothesis tries: the suite's share by default, more by HEADWATER_EXAMPLES."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "suite",
    max_examples=int(os.environ.get("HEADWATER_EXAMPLES", "500")),
    deadline=None,
    # Explanations trace every line of every example, which takes longer than the examples.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("suite")
# Runs of `headwater run` have the small root, unless a test asks for the other one: Spark takes its time to
# start.
os.environ.setdefault("HEADWATER_ENGINE", "embedded")
