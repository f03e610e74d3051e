"""Executors as pods, without a cluster: what is asked for, what Spark is told, what runs in such a pod."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.errors import Invalid
from headwater_spark import executor, init, pods
from headwater_spark.__main__ import _options, executors_of
from headwater_spark.settings import Executors, SparkSettings, cores

POD = {"POD_NAMESPACE": "plant", "POD_NAME": "factory-root-0", "POD_IP": "10.244.1.7"}
ASKED = ("--executors", "2", "--executor-image", "headwater/root:1")


def asked(*given: str, environment: dict[str, str] | None = None) -> Executors | None:
    parser = argparse.ArgumentParser()
    _options(parser)
    return executors_of(parser.parse_args(given), POD if environment is None else environment)


def test_without_any_everything_runs_here() -> None:
    assert asked() is None
    assert SparkSettings().slots == cores()
    assert not SparkSettings().apart


def test_the_pod_of_the_root_is_known_from_its_variables_or_options(tmp_path: Path) -> None:
    assert asked(*ASKED) == Executors(2, "headwater/root:1", "plant", "factory-root-0", "10.244.1.7")
    template = tmp_path / "template.yaml"
    template.write_text("kind: Pod\n")
    given = ["--namespace", "n", "--pod-name", "p", "--pod-ip", "fd00::1", "--executor-cores", "500m"]
    given += ["--executor-memory", "2g", "--executor-template", str(template)]
    expected = Executors(2, "headwater/root:1", "n", "p", "fd00::1", "500m", "2g", template)
    assert asked(*ASKED, *given, environment={}) == expected


def test_what_is_missing_or_left_over_is_told_at_once_with_its_remedy() -> None:
    with pytest.raises(Invalid) as raised:
        asked("--executors", "1", "--master", "local[2]", environment={"POD_IP": "here", "POD_NAME": "A_b"})
    told = str(raised.value)
    assert "--master: does not go with --executors; leave it out" in told
    assert "--executor-image: is missing; give the image of this root" in told
    assert "--namespace: is missing; give the namespace of this root's pod, or let POD_NAMESPACE have" in told
    assert "--pod-ip: 'here' is no IP address; give the address of this root's pod" in told
    assert "--pod-name: 'A_b' cannot be one" in told
    with pytest.raises(Invalid, match="--executor-cores: is of no use without executors; give --executors"):
        asked("--executor-cores", "1")


@pytest.mark.parametrize(
    "option, value, told",
    [
        ("--executors", "-1", "give 0 to 1000"),
        ("--executors", "1001", "give 0 to 1000"),
        ("--executor-cores", "0", "give them as 0.5, 500m or 2"),
        ("--executor-cores", "many", "give them as 0.5, 500m or 2"),
        ("--executor-memory", "1", "give one such as 512m or 2g"),
        ("--executor-template", "/nowhere", "give a file with a pod as YAML or JSON"),
        ("--checkpoint", "s3a://bucket/x", "give a directory that every executor mounts"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        asked(f"{option}={value}")
    said = capsys.readouterr().err
    assert f"argument {option}" in said
    assert told in said


@pytest.mark.parametrize("given, tasks", [("0.1", 1), ("500m", 1), ("1", 1), ("1500m", 2), ("2", 2)])
def test_an_executor_runs_as_many_tasks_as_it_has_cores(given: str, tasks: int) -> None:
    found = asked(*ASKED, "--executor-cores", given)
    assert found is not None
    told = pods.settings(found)
    assert told["spark.kubernetes.executor.request.cores"] == given
    assert told["spark.executor.cores"] == str(tasks)
    assert SparkSettings(executors=found).slots == 2 * tasks


def test_names_of_executors_differ_between_lives_and_are_never_too_long() -> None:
    long = Executors(1, "image", "n", "a" * 37 + "-" * 3 + "b" * 20, "10.0.0.1")
    prefixes = [pods.settings(long)["spark.kubernetes.executor.podNamePrefix"] for _ in range(2)]
    assert prefixes[0] != prefixes[1]
    assert all(len(each) <= 47 and "--" not in each for each in prefixes)


VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.244.1.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.244.1.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "factory-exec-3",
    "SPARK_EXECUTOR_MEMORY": "512m",
    **{f"SPARK_JAVA_OPT_{number}": f"-D{number}=a b" for number in range(11)},
}


def test_the_jvm_of_an_executor_has_what_the_scheduler_has_set() -> None:
    found = executor.command(VARIABLES, Path("/java/bin/java"), Path("/spark"))
    assert found[0] == "/java/bin/java"
    # By their numbers, not their names.
    assert found[2:13] == [f"-D{number}=a b" for number in range(11)]
    assert found[13:18] == ["-Xms512m", "-Xmx512m", "-cp", "/spark/jars/*", executor.BACKEND]
    options = dict(zip(found[18::2], found[19::2], strict=True))
    assert (options["--executor-id"], options["--podName"]) == ("3", "factory-exec-3")
    assert options["--driver-url"] == VARIABLES["SPARK_DRIVER_URL"]


def test_who_calls_for_an_executor_without_a_scheduler_is_told() -> None:
    command = [sys.executable, "-m", "headwater_spark", "executor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "SPARK_DRIVER_URL" in done.stderr
    assert "leave it out to run a root" in done.stderr


def first(*command: str) -> subprocess.Popen[str]:
    given = [sys.executable, "-I", "-S", init.__file__, *command]
    return subprocess.Popen(given, stdout=subprocess.PIPE, text=True)


def test_the_first_process_ends_as_its_program_does() -> None:
    with first("/bin/sh", "-c", "exit 3") as running:
        assert running.wait(60) == 3
    with first("/bin/sh", "-c", "kill -9 $$") as running:
        assert running.wait(60) == 128 + signal.SIGKILL


def test_the_first_process_passes_signals_on() -> None:
    with first(
        "/bin/sh", "-c", "trap 'echo told; exit 7' TERM; echo there; while :; do sleep 0.05; done"
    ) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "there\n"
        os.kill(it.pid, signal.SIGTERM)
        assert it.stdout.readline() == "told\n"
        assert it.wait(60) == 7


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes a process the first")
def test_the_first_process_takes_in_who_has_lost_his_parent() -> None:
    # Whoever is left is counted inside: the program and its shell alone.
    program = "(sleep 0.1 &) ; sleep 2; grep -c '^State:.Z' /proc/[0-9]*/status | grep -c ':1$'; exit 0"
    given = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-I", "-S", init.__file__]
    begin = time.monotonic()
    done = subprocess.run([*given, "/bin/sh", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr
    assert time.monotonic() - begin < 60
