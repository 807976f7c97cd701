"""A job that any of several executors may carry on, and whose effect happens once.

    .venv/bin/pip install -c constraints.txt httpx
    export FOLDPOINT_TOKEN=...            # of role executor, for the scope
    .venv/bin/python examples/failover.py run    --scope user:ada --run job-1 --name closet --effects sent.txt
    .venv/bin/python examples/failover.py run    --scope user:ada --run job-1 --name laptop --effects sent.txt
    .venv/bin/python examples/failover.py decide --scope user:ada --run job-1 --it-happened

The effect is a line appended to a file; take it for an email. Kill an executor at any moment and start another. Either
the job is done and the line is there once, or the run is *in doubt*: somebody started the effect and nobody recorded
how it ended. No program can know, so a person looks and decides, and the next executor goes on from there.

Why that holds: an executor takes the agent's lease and acts under its epoch. It records that it starts the effect, and
seals that, in one transaction which also checks the epoch. Only when that is answered 200 does it start. A start is
recorded by one executor at most, and no record that arrives late takes its place.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx

AGENT = "mailer"
CALL = {"tool": "send_mail", "input": {"to": "ada@example.org", "text": "Your bed is booked."}}
DONE, IN_DOUBT, FAILED = 0, 3, 4

Json = dict[str, Any]


class Stale(Exception):
    """Another executor took the lease."""


class NotOurs(Exception):
    """What we recorded did not become part of the run: somebody was first."""


class Ledger:
    """The calls about one run. A call whose answer was lost is sent again: what is recorded already stays as it is."""

    def __init__(self, url: str, scope: str, run: str, writer: str) -> None:
        self.run, self.writer = run, writer
        token = os.environ["FOLDPOINT_TOKEN"]
        headers = {"Authorization": f"Bearer {token}"}
        secure = url.startswith("https:")
        base = f"{url}/v1/scopes/{scope}"
        self._client = httpx.Client(base_url=base, headers=headers, timeout=30, verify=secure)

    def read(self) -> Json:
        """What is known of the run: its state, the next command, who holds the lease."""
        return self._call("GET", "/run-ledgers", params={"run": self.run}).raise_for_status().json()

    def acquire(self, ttl_ms: int) -> int:
        """Take the lease, once nobody holds it any more; the epoch under which we act from now on."""
        while True:
            body = {"agent_id": AGENT, "device_id": self.writer, "ttl_ms": ttl_ms}
            answer = self._call("POST", "/leases/acquire", json=body)
            if answer.status_code != 409:
                return answer.raise_for_status().json()["lease"]["epoch"]
            held = answer.json()
            print(
                f"{self.writer}: {held['holder']} holds the lease for {held['remaining_ms'] / 1000:.0f} s", flush=True
            )
            time.sleep(held["remaining_ms"] / 1000)

    def record(self, seq: int, event: str, fields: Json, epoch: int | None, *, seal: bool = False) -> None:
        """Record an event as the run's next one. Raises Stale, and NotOurs."""
        told = {"event": event, "run_id": self.run, **fields}
        record = {"seq": seq, "occurred_at_ms": time.time_ns() // 1_000_000, "event": told}
        body: Json = {"writer": self.writer, "run_id": self.run, "records": [record]}
        if epoch is not None:
            body |= {"epoch": epoch, "seal": seal}
        answer = self._call("POST", "/run-ledgers/append", json=body)
        code = answer.json().get("code")
        if code == "stale_epoch":
            raise Stale(answer.json()["detail"])
        if code == "seal_mismatch":
            raise NotOurs(answer.json()["detail"])
        (status,) = answer.raise_for_status().json()["statuses"]
        if status["status"] != "folded":
            raise NotOurs(f"{event} at seq {seq} is {status['status']}")

    def _call(self, method: str, path: str, **how: Any) -> httpx.Response:
        for left in (4, 3, 2, 1, 0):
            try:
                answer = self._client.request(method, path, **how)
            except httpx.TransportError:
                if not left:
                    raise
                time.sleep(0.2)
                continue
            if answer.status_code != 503 or not left:
                return answer
            time.sleep(float(answer.headers.get("Retry-After", 1)))
        raise AssertionError("unreachable")


class Executor:
    """Carries a run on from wherever it stands."""

    def __init__(self, ledger: Ledger, effects: Path, ttl_ms: int, hit: dict[str, int]) -> None:
        self.ledger, self.effects, self.ttl_ms, self.hit = ledger, effects, ttl_ms, hit
        self.epoch = 0

    def work(self) -> int:
        """Until the run ends, or nobody but a person can go on."""
        while True:
            try:
                self.epoch = self.ledger.acquire(self.ttl_ms)
                self._point("after lease")
                return self._carry_on()
            except Stale as error:
                print(f"{self.ledger.writer} lost the lease: {error}")

    def _carry_on(self) -> int:
        while True:
            state = self.ledger.read()["state"]
            name = state["phase"]["phase"]
            if name in ("finished", "failed"):
                return DONE if name == "finished" else FAILED
            if name == "tool_running":
                return IN_DOUBT
            try:
                self._step(state["next_seq"], name, state["phase"])
            except NotOurs as error:
                print(f"{self.ledger.writer} was not first: {error}")

    def _step(self, seq: int, name: str, phase: Json) -> None:
        """One step of the job. What only reads may be done again; what acts is recorded and sealed before."""
        turn = {"turn_id": phase["turn_id"]} if "turn_id" in phase else {"turn_id": f"turn-{seq}"}
        place = {**turn, "step": phase.get("step")}
        if name == "not_started":
            self._record(seq, "run_started", {"agent_id": AGENT})
        elif name in ("ready_for_context", "tool_failed"):
            self._record(seq, "context_built", {**turn, "context": {"token_budget": 100, "fragments": []}})
        elif name == "ready_to_request_model":
            self._record(seq, "model_requested", {**place, "model": "example"}, seal=True)
            output = {"role": "assistant", "content": "I send it."}
            answered = {"output": output, "proposed_calls": [CALL], "usage": None}
            self._record(seq + 1, "model_responded", {**place, **answered})
        elif name == "awaiting_model_response":
            self._record(seq, "model_failed", {**place, "reason": "its executor is gone; asking again is harmless"})
        elif name == "awaiting_tool_call":
            call = {"id": f"call-{seq}", "effect": "external_side_effect", **CALL}
            self._record(seq, "tool_call_proposed", {**turn, "call": call})
        elif name == "awaiting_policy":
            self._record(seq, "policy_evaluated", {"call_id": phase["call"]["id"], "decision": {"decision": "allow"}})
        elif name == "ready_to_execute_tool":
            self._execute(seq, phase["call"])
        elif name == "turn_concluded":
            self._record(seq, "run_finished", {})

    def _execute(self, seq: int, call: Json) -> None:
        self._record(seq, "tool_started", {"call_id": call["id"]}, seal=True)
        self._point("before effect")
        with self.effects.open("a") as file:
            file.write(f"{self.ledger.writer}: {call['input']['text']}\n")
            file.flush()
            os.fsync(file.fileno())
        self._point("after effect")
        self._record_end(seq + 1, call["id"])

    def _record_end(self, seq: int, call_id: str) -> None:
        """How it ended is a fact, also when another executor has the lease by now: it ends the doubt."""
        try:
            self._record(seq, "tool_finished", _finished(call_id))
        except Stale:
            self.ledger.record(seq, "tool_finished", _finished(call_id), None)
            raise

    def _record(self, seq: int, event: str, fields: Json, *, seal: bool = False) -> None:
        self._point(f"before {event}")
        self.ledger.record(seq, event, fields, self.epoch, seal=seal)
        self._point(f"after {event}")

    def _point(self, name: str) -> None:
        """Where a test kills or stops this process."""
        if name in self.hit:
            sys.stdout.flush()
            os.kill(os.getpid(), self.hit.pop(name))


def _finished(call_id: str) -> Json:
    result = {"call_id": call_id, "summary": "sent", "data": None, "artifacts": [], "visibility": "both"}
    return {"result": result}


def decide(ledger: Ledger, *, it_happened: bool) -> int:
    """A person looked: record what became of the effect that is in doubt."""
    state = ledger.read()["state"]
    if state["phase"]["phase"] != "tool_running":
        print("nothing is in doubt")
        return DONE
    call_id = state["phase"]["call_id"]
    if it_happened:
        ledger.record(state["next_seq"], "tool_finished", _finished(call_id), None)
    else:
        failed = {"call_id": call_id, "reason": "a person looked: it did not happen"}
        ledger.record(state["next_seq"], "tool_failed", failed, None)
    return DONE


def main() -> int:
    parser = argparse.ArgumentParser(description="A job that survives its executors.")
    commands = parser.add_subparsers(dest="command", required=True)
    run, deciding = commands.add_parser("run"), commands.add_parser("decide")
    for command in (run, deciding):
        command.add_argument("--url", default="http://127.0.0.1:8000")
        command.add_argument("--scope", required=True)
        command.add_argument("--run", required=True)
        command.add_argument("--name", default="person", help="the executor's own, 1 to 64 letters, digits, - and _")
    run.add_argument("--effects", type=Path, required=True)
    run.add_argument("--ttl-ms", type=int, default=30_000, help="after so long without us another may take over")
    run.add_argument("--die", metavar="POINT", help="such as 'after effect': SIGKILL there")
    run.add_argument("--stop", metavar="POINT", help="SIGSTOP there")
    happened = deciding.add_mutually_exclusive_group(required=True)
    happened.add_argument("--it-happened", action="store_true")
    happened.add_argument("--it-did-not", action="store_true")
    given = parser.parse_args()
    ledger = Ledger(given.url, given.scope, given.run, given.name)
    if given.command == "decide":
        return decide(ledger, it_happened=given.it_happened)
    hit: dict[str, int] = {given.die: signal.SIGKILL, given.stop: signal.SIGSTOP}
    outcome = Executor(ledger, given.effects, given.ttl_ms, hit).work()
    print({DONE: "done", IN_DOUBT: "in doubt", FAILED: "failed"}[outcome])
    return outcome


if __name__ == "__main__":
    sys.exit(main())
