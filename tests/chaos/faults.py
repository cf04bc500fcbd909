"""The faults, one function each. What they draw (which worker, how long) comes from the run's seed.

A fault returns when its cause is gone; what it cost is measured by the run's watch. The pauses here are the faults'
own durations, never a way to wait for something.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
from kafka_help import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.scene import Scene

    Fault = Callable[[Scene], None]

#: A little longer than the workers' session time-out (10 s), or much longer.
FREEZE_SECONDS = (11.0, 16.0)
#: How long a broker is frozen that has no other beside it. Past its session (9 s) the controller, in the same process,
#: would find it gone and its partitions without a leader; Kafka 4.3.1 and 4.4.0 (not 3.9.2) then take a
#: transaction's partitions for deleted and leave their markers out: a commit is acknowledged and is none.
LONE_FREEZE_SECONDS = (3.0, 6.0)
#: How long a broker is away.
AWAY_SECONDS = (0.0, 8.0)


def kill(scene: Scene) -> None:
    """Kill -9 one worker, and start another in its place."""
    victim = scene.dice.choice([worker for worker in scene.fleet.workers if worker not in scene.spared])
    with scene.watch.stroke("kill -9, restarted at once"):
        if victim.alive:
            victim.kill()
        scene.fleet.restart(victim)


def kill_static(scene: Scene) -> None:
    """Kill -9 a static member: the one that is started in its place is let in at once, as if it were the same."""
    member = scene.fleet.start(WORKER_INSTANCE_ID="static-member")
    scene.wait_for_calm()
    with scene.watch.stroke("static member killed, restarted"):
        member.kill()
        member = scene.fleet.restart(member)
    scene.wait_for_calm()
    with scene.watch.stroke("static member stopped for good"):  # it does not leave the group: its session must end
        scene.fleet.retire(member)


def freeze(scene: Scene) -> None:
    """Freeze one worker past its session time-out: its partitions go to others. Thawed, it is a zombie."""
    victim = scene.dice.choice(scene.fleet.workers)
    with scene.watch.stroke("frozen past the session, thawed"):
        victim.freeze()
        time.sleep(scene.dice.uniform(*FREEZE_SECONDS))
        victim.thaw()


def scale_up(scene: Scene) -> None:
    """One worker more."""
    with scene.watch.stroke("a worker added"):
        scene.fleet.start()


def scale_down(scene: Scene) -> None:
    """One worker fewer, stopped in good order."""
    victim = scene.dice.choice(scene.fleet.workers)
    with scene.watch.stroke("a worker stopped (SIGTERM)"):
        scene.fleet.retire(victim)


def stop_broker(scene: Scene) -> None:
    """Stop the broker in good order; it comes back."""
    away(scene, scene.dice.uniform(*AWAY_SECONDS))


def kill_broker(scene: Scene) -> None:
    """Kill -9 the broker; it comes back."""
    away(scene, scene.dice.uniform(*AWAY_SECONDS), kill=True)


def freeze_broker(scene: Scene) -> None:
    """Freeze the broker: connections stay open, nothing answers."""
    with scene.watch.stroke("broker frozen"):
        scene.kafka.pause()
        time.sleep(scene.dice.uniform(*LONE_FREEZE_SECONDS))
        scene.kafka.resume()


def fill_disk(scene: Scene) -> None:
    """Let no file of the broker grow, as on a full disk: it gives up at its next write, and comes back with room."""
    with scene.watch.stroke("broker's disk full"):
        psutil.Process(scene.kafka.pid).rlimit(psutil.RLIMIT_FSIZE, (1, psutil.RLIM_INFINITY))
        until(lambda: scene.kafka.pid is None)
        scene.kafka.start()


def away(scene: Scene, seconds: float, *, kill: bool = False) -> None:
    """Take the broker away for so long."""
    with scene.watch.stroke(f"broker {'killed' if kill else 'stopped'}, back{' after minutes' * (seconds > 60)}"):
        if kill:
            scene.kafka.kill()
        else:
            scene.kafka.stop(keep_data=True)
        time.sleep(seconds)
        scene.kafka.start()


WORKER_FAULTS: tuple[Fault, ...] = (kill, freeze, scale_up, scale_down)
BROKER_FAULTS: tuple[Fault, ...] = (stop_broker, kill_broker, freeze_broker)


def any_of_all(scene: Scene) -> None:
    """One drawn from all, between one and three workers left."""
    fitting = [
        fault
        for fault in (*WORKER_FAULTS, *BROKER_FAULTS)
        if not (fault is scale_up and len(scene.fleet.workers) >= 3)
        and not (fault is scale_down and len(scene.fleet.workers) <= 1)
    ]
    scene.dice.choice(fitting)(scene)
