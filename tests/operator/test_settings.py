"""The environment as settings, and what is wrong with it."""

from __future__ import annotations

import pytest

from headwater.errors import Invalid
from headwater_operator.settings import VARIABLES, Settings, log_environment, settings_of

IMAGES = {"NODE_IMAGE": "headwater/node:1", "ROOT_IMAGE": "headwater/root:1"}


def test_only_the_images_are_required() -> None:
    found = settings_of(IMAGES, "host-1")
    assert found == Settings("headwater/node:1", "headwater/root:1", pod_name="host-1")
    assert (found.watch_namespaces, found.resync, found.workers) == ((), 300.0, 4)
    assert (found.lease.duration, found.lease.deadline, found.lease.retry) == (15, 10.0, 2.0)
    assert (found.watch.server, found.watch.client, found.watch.silence) == (60, 90, 180.0)


def test_everything_can_be_given() -> None:
    found = settings_of(
        {
            **IMAGES,
            "WATCH_NAMESPACES": "plant-a, plant-b,,plant-a",
            "POD_NAMESPACE": "own",
            "POD_NAME": "operator-abc",
            "LEASE_NAME": "second",
            "IMAGE_PULL_POLICY": "never",
            "IMAGE_PULL_SECRETS": "one,two",
            "METRICS_ADDRESS": "[::1]:1",
            "RESYNC_SECONDS": "12.5",
            "WORKERS": "9",
            "LOG_LEVEL": "DEBUG",
        },
        "host",
    )
    assert found == Settings(
        "headwater/node:1",
        "headwater/root:1",
        watch_namespaces=("plant-a", "plant-b"),
        namespace="own",
        pod_name="operator-abc",
        lease_name="second",
        pull_policy="Never",
        pull_secrets=("one", "two"),
        metrics_address="[::1]:1",
        resync=12.5,
        workers=9,
    )


@pytest.mark.parametrize(
    "variable, value, remedy",
    [
        ("NODE_IMAGE", "", "name an image"),
        ("ROOT_IMAGE", "a b", "name one image"),
        ("WATCH_NAMESPACES", "plant-*", "parted by commas"),
        ("POD_NAMESPACE", "Own", "a-z"),
        ("LEASE_NAME", "-x", "a-z"),
        ("IMAGE_PULL_POLICY", "Sometimes", "IfNotPresent"),
        ("IMAGE_PULL_SECRETS", "a;b", "parted by commas"),
        ("METRICS_ADDRESS", "9100", "host and port"),
        ("RESYNC_SECONDS", "0", "from 1"),
        ("RESYNC_SECONDS", "nan", "from 1"),
        ("RESYNC_SECONDS", "5m", "from 1"),
        ("WORKERS", "1.5", "whole number"),
        ("WORKERS", "65", "to 64"),
        ("WORKERS", "inf", "whole number"),
        ("LOG_LEVEL", "loud", "warning"),
    ],
)
def test_what_is_wrong_is_told_with_its_remedy(variable: str, value: str, remedy: str) -> None:
    with pytest.raises(Invalid) as refused:
        settings_of({**IMAGES, variable: value}, "host")
    [problem] = refused.value.problems
    assert problem.field == variable
    assert remedy in problem.remedy


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        settings_of({"WORKERS": "many", "LOG_LEVEL": "loud"}, "host")
    told = [problem.field for problem in refused.value.problems]
    assert told == ["NODE_IMAGE", "ROOT_IMAGE", "WORKERS", "LOG_LEVEL"]
    assert set(told) <= set(VARIABLES)


def test_the_level_of_the_log_has_the_name_of_all_programs_too() -> None:
    assert log_environment({"LOG_LEVEL": "Debug"})["HEADWATER_LOG_LEVEL"] == "debug"
    assert log_environment({"HEADWATER_LOG_LEVEL": "error"})["HEADWATER_LOG_LEVEL"] == "error"
    assert "HEADWATER_LOG_LEVEL" not in log_environment({"LOG_LEVEL": "loud"})
