"""Pre-training on two hosts: two network namespaces, each with an address of its own, joined by a virtual cable."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_runs as runs

pytestmark = pytest.mark.slow
HOSTS = {f"elmokit-{os.getpid()}-{k}": f"10.213.77.{k}" for k in (1, 2)}
CABLE = [f"elmo{os.getpid()}{end}" for end in "ab"]  # its two ends
SETTINGS = {"steps": 40, "dropout": 0.0, "state": "carry", "log_every": 1, "valid_every": 20}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """The names of two hosts that reach each other, and nothing else."""
    if (
        shutil.which("ip") is None
        or subprocess.run(["ip", "netns", "add", "elmokit-try"], capture_output=True).returncode
    ):
        pytest.skip("network namespaces cannot be made here")
    ip("netns", "del", "elmokit-try")
    names = list(HOSTS)
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", CABLE[0], "netns", names[0], "type", "veth", "peer", "name", CABLE[1], "netns", names[1])
        for name, end in zip(names, CABLE, strict=True):
            ip("-n", name, "addr", "add", f"{HOSTS[name]}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        runs.end_all()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_two_hosts_equal_one_process(hosts: list[str], tmp_path: Path) -> None:
    text, alone, both = runs.write_text(tmp_path / "text.txt"), tmp_path / "alone", tmp_path / "both"
    assert runs.run_here(runs.pretraining(text, output=alone, **SETTINGS)).status == 0
    command = runs.pretraining(text, output=both, **SETTINGS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{HOSTS[hosts[0]]}:29500", "--rdzv-id", "two-hosts"]
    started = []
    for name, cable in zip(hosts, CABLE, strict=True):
        # What torchrun and gloo take from the names of machines is given: namespaces have no names.
        here = ["--local-addr", HOSTS[name], "--rdzv-conf", f"is_host={int(name == hosts[0])}"]
        enter = ["ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME={cable}"]
        started.append(runs.start(command, before=[*enter, *torchrun, *here]))
    for process in started:
        ended = runs.end(process, timeout=900)
        assert ended.status == 0, ended.said
    wanted, found = runs.losses_of(alone), runs.losses_of(both)
    assert len(wanted) == 40
    assert found.keys() == wanted.keys()
    for step, loss in found.items():
        assert loss == pytest.approx(wanted[step], rel=1e-5), step
