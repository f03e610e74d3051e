"""How hard Hypothesis tries, which root runs have, and that what is started here hears Ctrl-C."""

from __future__ import annotations

import os
import signal

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
# A shell has what it starts in the background ignore Ctrl-C; tests start programs that they stop that way.
signal.signal(signal.SIGINT, signal.default_int_handler)
