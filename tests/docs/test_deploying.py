"""The guide to deploying, run as it is written: every host a network namespace with its own address and folder."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deployment import PATIENCE, Deployment, provision
from hiddenarm.cli.main import commands
from hiddenarm.errors import BudgetSpentError, InputError, StaleStateError
from hiddenarm.service.federation_file import FederationFile, PartyEntry

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "deploying.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(hotel|airline|broker)\$ (.*)")
FINAL = (InputError.exit_code, StaleStateError.exit_code, BudgetSpentError.exit_code)
"""A restart does not help."""
SCP = """\
#!/bin/bash
# Carries files between the folders that stand for hosts.
while [[ $1 == -* ]]; do shift; done
to=${@: -1}
cp -rp "${@:1:$#-1}" "HOSTS/${to%%:*}/${to#*:}"
"""


def addresses() -> dict[str, str]:
    """The hosts of the guide's first table."""
    return dict(re.findall(r"^\| `(\w+)` \| (\d+\.\d+\.\d+\.\d+) \|", GUIDE, re.MULTILINE))


def steps() -> list[tuple[str, str]]:
    """Host and command, in the order of the guide."""
    lines = [line for language, block in BLOCK.findall(GUIDE) if language == "console" for line in block.splitlines()]
    found = [match.groups() for line in lines if (match := COMMAND.fullmatch(line))]
    assert [line for line in lines if not COMMAND.fullmatch(line)] == ["$ make wheel"]
    return [(host, command) for host, command in found]


@dataclass
class Ran:
    host: str
    command: str
    output: str


class Hosts:
    """Namespaces on one bridge, each with an address and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = f"ha{os.getpid() % 100_000}"
        self._hub = f"{self._prefix}-hub"
        tools = folder / "tools"
        tools.mkdir()
        (tools / "scp").write_text(SCP.replace("HOSTS", str(folder)))
        (tools / "scp").chmod(0o755)
        (tools / "hiddenarm").write_text(f'#!/bin/bash\nexec {sys.executable} -m hiddenarm "$@"\n')
        (tools / "hiddenarm").chmod(0o755)
        self._path = f"{tools}{os.pathsep}{os.environ['PATH']}"

    def build(self) -> None:
        ip("netns", "add", self._hub)
        ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._hub, "link", "set", "bridge", "up")
        for number, (host, address) in enumerate(addresses().items()):
            name, plug = self._name(host), f"plug{number}"
            (self.folder / host).mkdir()
            ip("netns", "add", name)
            ip("-n", self._hub, "link", "add", plug, "type", "veth", "peer", "name", "net0", "netns", name)
            ip("-n", self._hub, "link", "set", plug, "master", "bridge", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "net0")
            ip("-n", name, "link", "set", "net0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def run(self, host: str, command: str) -> Ran:
        """Type a command on a host, answering y if asked."""
        home = self.folder / host
        out = self.folder / "output"
        environment = {**os.environ, "PATH": self._path, "HOME": str(home), "OMP_NUM_THREADS": "1"}
        with out.open("w") as stream:
            done = subprocess.run(
                ["ip", "netns", "exec", self._name(host), "bash", "-c", command],
                cwd=home,
                env=environment,
                input="y\n",
                stdout=stream,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE,
            )
        ran = Ran(host, command, out.read_text())
        assert done.returncode == 0, f"{ran}\n{self.logs()}"
        return ran

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self.folder.glob("*/*.log")))

    def clear(self) -> None:
        """End what runs inside these namespaces, and remove them."""
        for host in (*addresses(), None):
            name = self._name(host) if host else self._hub
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
            for pid in listed.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def _name(self, host: str) -> str:
        return f"{self._prefix}-{host}"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    hosts = Hosts(tmp_path)
    try:
        hosts.build()
    except subprocess.CalledProcessError as error:
        hosts.clear()
        pytest.skip(f"network namespaces do not work here: {error.stderr.strip()}")
    yield hosts
    hosts.clear()


def federation_file_text() -> str:
    (text,) = [block for language, block in BLOCK.findall(GUIDE) if language == "toml"]
    return str(text)


def test_the_guide_leads_to_the_first_decision(hosts: Hosts) -> None:
    (hosts.folder / "broker" / "federation.toml").write_text(federation_file_text())
    began = time.monotonic()
    ran = [hosts.run(host, command) for host, command in steps()]
    print(f"{len(ran)} commands in {time.monotonic() - began:.0f} s")
    check_fingerprints(ran)
    check_result(hosts, ran)
    for host in addresses():  # and no key left the host on which it was made
        keys = {path.read_bytes() for path in (hosts.folder / host).rglob("key.pem")}
        elsewhere = [path for other in addresses() if other != host for path in (hosts.folder / other).rglob("*")]
        assert keys
        assert not [path for path in elsewhere if path.is_file() and path.read_bytes() in keys]


def check_fingerprints(ran: list[Ran]) -> None:
    """Both sides of every request saw the same."""
    requested = [shown(one) for one in ran if one.command.startswith("hiddenarm request")]
    approved = [shown(one) for one in ran if one.command.startswith("hiddenarm approve")]
    assert len(requested) == 6
    assert sorted(requested) == sorted(approved)


def shown(ran: Ran) -> tuple[str, ...]:
    return tuple(re.findall(r"^(?:role|fingerprint): +(.*)$", ran.output, re.MULTILINE))


def check_result(hosts: Hosts, ran: list[Ran]) -> None:
    home = hosts.folder / "hotel"
    first, learned, second = (json.loads(line) for line in (home / "answers").read_text().splitlines())
    assert (home / "before").read_text() == (home / "answers").read_text()  # by a process that was killed and restarted
    for decision in (first, second):
        assert decision["name"] in ("beach", "city", "mountains", "cruise")
    assert learned == {"id": first["id"], "version": 1}
    states = [one.output for one in ran if "hiddenarm status hotel" in one.command]
    assert len(states) == 2  # before and after the kill
    assert all(re.search(r"lessons in the model\W+1 ", state) for state in states), states
    assert all("Traceback" not in path.read_text() for path in hosts.folder.glob("*/*.log"))


def test_every_field_of_the_federation_file_is_in_the_table() -> None:
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", GUIDE, re.MULTILINE))))
    fields = {*FederationFile.model_fields, *PartyEntry.model_fields} - {"party", "dealer", "actor", "rewarder"}
    assert fields <= named
    assert named - fields == set(addresses())


def test_the_federation_file_of_the_guide_is_sound(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(federation_file_text())
    federation_file = FederationFile.read(tmp_path / "federation.toml")
    assert {member: federation_file.kit_file(member).durable for member in federation_file.members}
    assert {party.host for party in federation_file.party} | {federation_file.dealer.host} == set(addresses().values())


def service_of(name: str) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / name)
    return unit["Service"]


def verify_unit(name: str) -> None:
    """By systemd itself, where it is installed."""
    if shutil.which("systemd-analyze"):
        said = subprocess.run(
            ["systemd-analyze", "verify", str(ROOT / "deploy" / name)], capture_output=True, text=True
        )
        lines = said.stderr.splitlines()
        assert not [line for line in lines if name.partition("@")[0] in line and "is not executable" not in line]


def test_the_unit_runs_commands_that_there_are() -> None:
    service = service_of("hiddenarm@.service")
    for line in (service["ExecStart"], service["ExecStartPre"]):
        program, command, kit, *options = shlex.split(line)
        assert (program, kit) == ("/opt/hiddenarm/bin/hiddenarm", "/var/lib/hiddenarm/%i")
        commands.commands[command].make_context(command, [str(ROOT), *options])
    assert service["ExecReload"].startswith("/bin/kill -HUP")
    assert (service["StateDirectory"], service["StateDirectoryMode"]) == ("hiddenarm/%i", "0700")
    assert "ReadWritePaths" not in service  # nothing else is written
    assert service["RestartPreventExitStatus"].split() == [str(code) for code in FINAL]
    verify_unit("hiddenarm@.service")


def unit_line() -> str:
    """What bash is given by the unit of an organisation, for the hotel."""
    bash, option, line = shlex.split(service_of("hiddenarm-organisation@.service")["ExecStart"])
    assert (bash, option) == ("/bin/bash", "-c")
    return line.replace("%i", "hotel")


def compose_line() -> str:
    """What bash is given by the compose file of an organisation, with the paths of the unit."""
    text = (ROOT / "deploy" / "compose.organisation.yaml").read_text()
    entry, (line,) = (json.loads(re.findall(rf"{name}: (\[.*\])", text)[0]) for name in ("entrypoint", "command"))
    assert entry == ["/bin/bash", "-c"]
    for folder, name in (("/party", "hotel"), ("/actor", "actor"), ("/rewarder", "rewarder")):
        assert f":{folder}\n" in text
        line = line.replace(f" {folder} ", f" /var/lib/hiddenarm/{name} ")
    return str(line).replace("/exchange/", "/var/lib/hiddenarm/")


@pytest.mark.parametrize("line", [unit_line, compose_line])
def test_an_organisation_runs_as_one_service(tmp_path: Path, line: Callable[[], str]) -> None:
    """The line of the unit, and of the compose file, with other paths: requests, answers, SIGTERM, and again."""
    kits = provision(tmp_path, durable=True)
    command = line()
    for there, here in (
        ("/opt/hiddenarm/bin/hiddenarm", f"{sys.executable} -m hiddenarm"),
        *((f"/var/lib/hiddenarm/{name}", f"{tmp_path}/{name}") for name in ("requests", "answers")),
        ("/var/lib/hiddenarm/", f"{kits}/"),
    ):
        assert there in command
        command = command.replace(there, here)
    (tmp_path / "requests").write_text('{"request": "visit 1", "key": "user 17"}\n')
    with Deployment(kits) as deployment:
        deployment.start("dealer", "airline")
        answers = [answered_by_service(command, tmp_path, 1) for _ in range(2)]
        assert answers[0] == answers[1]
        identifier = json.loads(answers[0])["id"]
        with (tmp_path / "requests").open("a") as requests:
            requests.write(json.dumps({"id": identifier, "reward": 1}) + "\n")
        assert json.loads(answered_by_service(command, tmp_path, 2).splitlines()[1])["version"] == 1


def answered_by_service(command: str, folder: Path, lines: int) -> str:
    """What a service answers until it has given so many lines; it is then stopped as its manager would."""
    answers = folder / "answers"
    answers.unlink(missing_ok=True)
    with (folder / "service.log").open("a") as log:
        process = subprocess.Popen(["/bin/bash", "-c", command], stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers.exists() or answers.read_text().count("\n") < lines:
            assert time.monotonic() < deadline, (folder / "service.log").read_text()
            assert process.poll() is None, (folder / "service.log").read_text()
            time.sleep(0.1)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # tail, and in case of failure all
    return answers.read_text()


def test_the_unit_of_an_organisation_looks_at_all_its_kits() -> None:
    text = (ROOT / "deploy" / "hiddenarm-organisation@.service").read_text()
    kits = [f"/var/lib/hiddenarm/{name}" for name in ("%i", "actor", "rewarder")]
    checks = re.findall(r"^ExecStartPre=/opt/hiddenarm/bin/hiddenarm check (\S+) --offline$", text, re.MULTILINE)
    assert checks == kits
    service = service_of("hiddenarm-organisation@.service")
    assert service["StateDirectory"].split() == ["hiddenarm", *(kit.removeprefix("/var/lib/") for kit in kits)]
    assert service["KillMode"] == "mixed"
    verify_unit("hiddenarm-organisation@.service")
    one = service_of("hiddenarm@.service")
    own = {"ExecStart", "ExecStartPre", "KillMode", "StateDirectory"}
    assert {name: service[name] for name in service if name not in own} == {
        name: one[name] for name in one if name not in own
    }


def test_the_compose_file_runs_commands_that_there_are() -> None:
    text = (ROOT / "deploy" / "compose.yaml").read_text()
    lists = [json.loads(found) for found in re.findall(r'(?:command|test): (\[".*"\])', text)]
    serve, health = lists
    commands.commands[serve[0]].make_context(serve[0], [str(ROOT), *serve[2:]])
    commands.commands[health[2]].make_context(health[2], [str(ROOT), *health[4:]])
    assert health[4:] == ["--live"]  # that a peer is away is no reason to restart a container
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    assert json.loads(re.findall(r"^CMD (.*)$", image, re.MULTILINE)[0]) == serve
    assert health[1] == json.loads(re.findall(r"^ENTRYPOINT (.*)$", image, re.MULTILINE)[0])[0]


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_the_kubernetes_objects_are_accepted(version: str) -> None:
    """By the schemas of the API, strictly: a field that there is not is an error."""
    for item in kubernetes_objects():
        kubernetes_validate.validate(item, version, strict=True)
    broken = kubernetes_objects()[-1]
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def kubernetes_objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "role.yaml").read_text()))


def pod() -> dict[str, Any]:
    found: dict[str, Any] = kubernetes_objects()[-1]["spec"]["template"]["spec"]
    return found


def test_the_kubernetes_objects_fit_together() -> None:
    """Names, labels and ports; what a role needs of its service; what the restricted profile of pods asks for."""
    _, account, service, policy, stateful = kubernetes_objects()
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    assert (pod()["serviceAccountName"], stateful["spec"]["serviceName"]) == (account["metadata"]["name"],) * 2
    (role,) = pod()["containers"]
    ports = {port["name"]: port["containerPort"] for port in role["ports"]}
    assert {entry["ports"][0]["port"] for entry in policy["spec"]["ingress"]} == set(ports)
    assert [bool(entry.get("from")) for entry in policy["spec"]["ingress"]] == [False, True]  # metrics: one scraper
    assert stateful["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(ports["monitor"])
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert stateful["spec"]["replicas"] == 1
    assert {probe: role[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert pod()["securityContext"]["runAsNonRoot"] is True
    user = re.findall(r"--uid (\d+)", (ROOT / "deploy" / "Dockerfile").read_text())
    assert user == [str(pod()["securityContext"]["runAsUser"])]
    for container in (*pod()["initContainers"], role):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_pod_makes_its_kit_from_the_secret_and_keeps_its_state(tmp_path: Path) -> None:
    """The line of the first container, with other paths, twice: the second time there is state, and a new file."""
    kits = provision(tmp_path, durable=True)
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o755)
    for path in (kits / "hotel").iterdir():
        if path.is_file():
            (secret / path.name).write_bytes(path.read_bytes())
            (secret / path.name).chmod(0o644)  # as secrets are mounted
    bash, option = pod()["initContainers"][0]["command"]
    (line,) = pod()["initContainers"][0]["args"]
    for there, here in (
        ("/opt/hiddenarm/bin/hiddenarm", f"{sys.executable} -m hiddenarm"),
        ("/var/lib/hiddenarm", f"{tmp_path}/volume"),
        ("/secret/", f"{secret}/"),
    ):
        assert there in line
        line = line.replace(there, here)
    command, kit, *options = pod()["containers"][0]["args"]
    assert (command, kit) == ("serve", "/var/lib/hiddenarm/kit")
    commands.commands[command].make_context(command, [str(ROOT), *options])
    for _ in range(2):
        done = subprocess.run([bash, option, line], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        kept = tmp_path / "volume" / "kit" / "state"
        kept.mkdir(mode=0o700, exist_ok=True)
        (secret / "features.csv").write_text((secret / "features.csv").read_text() + "user 99,0.1,0.1,0.1\n")
    assert kept.is_dir()
    assert "user 99" in (tmp_path / "volume" / "kit" / "features.csv").read_text()


def test_an_image_is_built_of_the_package_alone() -> None:
    """What .dockerignore lets through, by its last line that fits: no kit, no test, no history."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert let_in == {"LICENSE", "README.md", "pyproject.toml", "setup.py", "src"}
    assert all((ROOT / name).exists() for name in let_in)


def test_the_commands_for_user_and_folder_are_those_of_the_units() -> None:
    (block,) = [block for language, block in BLOCK.findall(GUIDE) if language == "text" and "useradd" in block]
    for prompt, command in re.findall(r"^(hotel# )(.*)$", block, re.MULTILINE):
        assert subprocess.run(["bash", "-n", "-c", command]).returncode == 0, prompt + command
    service = service_of("hiddenarm@.service")
    assert re.search(rf"useradd --system .* {service['User']}$", block, re.MULTILINE)
    assert f"/var/lib/{service['StateDirectory'].replace('%i', 'hotel')}" in block
    assert service["ExecStart"].split()[0].removesuffix("/bin/hiddenarm") in block
    for unit in re.findall(r"deploy/(\S+\.service)", block):
        assert (ROOT / "deploy" / unit).is_file()
