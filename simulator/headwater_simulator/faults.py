"""What befalls the processes of a run, by the kind of fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headwater.machines import node, source
from headwater.queries import Query
from headwater.windows import Punctuation
from headwater_simulator.catalogue import ADDED
from headwater_simulator.disks import Spool
from headwater_simulator.network import ALL
from headwater_simulator.plans import LETTERS, Fault

if TYPE_CHECKING:
    from headwater_simulator.world import World


def befall(world: World, fault: Fault) -> bool:
    """Let it happen; False if there is nobody whom it could befall."""
    return _KINDS[fault.kind](world, fault)


def _crash(world: World, fault: Fault) -> bool:
    if fault.who not in world.machines:
        return False
    if fault.number % 3:
        world.make(fault.who)
    else:
        del world.machines[fault.who]
        world.at(fault.span, world.revive, fault.who)
    return True


def _lose(world: World, fault: Fault) -> bool:
    peers = world.peers(fault.who) if fault.who in world.machines else []
    if not peers:
        return False
    world.end(fault.who, world.rng.choice(peers))
    return True


def _leave(world: World, fault: Fault) -> bool:
    machine = world.machines.get(fault.who)
    if not isinstance(machine, node.NodeMachine) or not world.peers(fault.who):
        return False
    world.act(fault.who, machine.leave)
    world.at(10, _drain, world, fault.who, machine, world.now + fault.span)
    return True


def _drain(world: World, name: str, machine: node.NodeMachine, until: int) -> None:
    """A node that leaves is gone when all that it took is acknowledged, or it has taken too long."""
    if world.machines.get(name) is not machine:
        return
    peers = world.peers(name)
    if not peers:
        # Nobody is left to stand in for it: whoever runs the tree starts it again.
        world.make(name)
    elif machine.drained or world.now >= until:
        world.end(name, world.rng.choice(peers))
    else:
        world.at(10, _drain, world, name, machine, until)


def _join(world: World, fault: Fault) -> bool:
    layer = LETTERS.index(fault.who[0])
    if layer >= len(world.layers):
        return False
    world.layers[layer].append(fault.who)
    above = world.layers[layer + 1] if layer + 1 < len(world.layers) else ["root"]
    world.parent[fault.who] = fault.other if fault.other in above else world.rng.choice(above)
    world.make(fault.who)
    return True


def _replace(world: World, fault: Fault) -> bool:
    machine = world.machines.get(fault.who)
    if not isinstance(machine, node.NodeMachine):
        return False
    world.replace(fault.who, machine)
    return True


def _pause(world: World, fault: Fault) -> bool:
    world.paused[fault.who] = world.now + fault.span
    return True


def _cut(world: World, fault: Fault) -> bool:
    world.network.cut(fault.who, fault.other, world.now + fault.span)
    return True


def _split(world: World, fault: Fault) -> bool:
    world.network.cut(fault.who, ALL, world.now + fault.span)
    world.network.cut(ALL, fault.who, world.now + fault.span)
    return True


def _slow(world: World, fault: Fault) -> bool:
    world.network.slow(fault.who, world.now + fault.span)
    return True


def _restart(world: World, fault: Fault) -> bool:
    if fault.who not in world.machines:
        return False
    world.make(fault.who)
    if fault.number % 3 == 0:
        # Once more, before what the first one has said is there.
        again = fault.span // 6 + 4
        world.network.slow(fault.who, world.now + again)
        world.at(again, world.make, fault.who)
    return True


def _setback(world: World, fault: Fault) -> bool:
    if fault.who not in world.machines:
        return False
    world.spools[fault.who].set_back(world.now - fault.span)
    world.turn_to(fault.who, world.spools[fault.who])
    return True


def _respool(world: World, fault: Fault) -> bool:
    if fault.who not in world.machines:
        return False
    before = world.spools[fault.who]
    world.turn_to(fault.who, Spool(f"{before.id}+", world.judge.counted))
    if fault.number % 2:
        world.at(fault.span, _return_to, world, fault.who, before)
    return True


def _shorten(world: World, fault: Fault) -> bool:
    if fault.who not in world.machines:
        return False
    above = world.parent.get(world.parent[fault.who], "root")
    if fault.number % 2:
        # What is lost is still under way when the older copy is opened.
        world.network.slow(fault.who, world.now + 20)
        if above != "root":
            world.paused[above] = world.now + 30 + fault.span
        world.at(20, _lose_records, world, fault.who, 1 + fault.span % 3)
    else:
        _lose_records(world, fault.who, 1 + fault.span % 5)
    return True


def _lose_records(world: World, name: str, lost: int) -> None:
    if not world.quiet:
        world.spools[name].shorten(lost)
        world.turn_to(name, world.spools[name])


def _return_to(world: World, name: str, spool: Spool) -> None:
    if not world.quiet:
        world.turn_to(name, spool)


def _refuse(world: World, fault: Fault) -> bool:
    spool = world.spools.get(fault.who)
    if spool is None:
        return False
    spool.full = True
    world.at(fault.span, setattr, spool, "full", False)
    return True


def _move(world: World, fault: Fault) -> bool:
    known = fault.other == "root" or fault.other in world.machines
    if fault.who not in world.machines or not known:
        return False
    world.parent[fault.who] = fault.other
    return True


def _assign(world: World, fault: Fault) -> bool:
    machine = world.living_root()
    if machine is None or fault.other not in world.machines:
        return False
    world.act("root", lambda: machine.assign({fault.who: fault.other}))
    return True


def _kill(world: World, fault: Fault) -> bool:
    if "root" not in world.machines:
        return False
    # It counts when the root comes to it.
    world.disk.arm(fault.other, fault.number % 3)
    return False


def _full(world: World, fault: Fault) -> bool:
    world.disk.full = True
    world.at(fault.span, setattr, world.disk, "full", False)
    return True


def _clock_back(world: World, fault: Fault) -> bool:
    world.behind[fault.who] = world.now + fault.span
    return True


def _takeover(world: World, fault: Fault) -> bool:
    if fault.other not in world.machines or fault.other == fault.who:
        return False
    world.ways.lead(fault.who, (fault.other,))
    return True


def _spread(world: World, fault: Fault) -> bool:
    if len(world.layers[0]) < 2:
        return False
    world.ways.lead(fault.who, tuple(world.layers[0]))
    return True


def _add(world: World, fault: Fault) -> bool:
    machine = world.living_root()
    if machine is None or machine.engine.watermark is None:
        # As soon as there is one: then most is under way.
        world.at(5, world.fault, fault)
        return False
    window = ADDED[fault.number % len(ADDED)]
    query = Query(f"+{len(machine.engine.changes)}", window, "sum", key_by="key" if fault.span % 2 else None)
    world.decide(lambda: machine.add(query))
    return True


def _remove(world: World, fault: Fault) -> bool:
    machine = world.living_root()
    if machine is None or machine.engine.watermark is None or len(machine.engine.active) < 2:
        return False
    gone = sorted(machine.engine.active)[fault.number % len(machine.engine.active)]
    # What was final when a query went at once, the log tells of windows that the watermark alone decides.
    marked = {query.id for query in machine.engine.queries if isinstance(query.window, Punctuation)}
    told = not world.plan.lanes and gone not in marked
    at_once = told and fault.span % 2 == 0
    world.decide(lambda: machine.remove(gone, at_once=at_once))
    return True


def _retire(world: World, fault: Fault) -> bool:
    machine, mine = world.living_root(), world.machines.get(fault.who)
    if machine is None or not isinstance(mine, source.SourceMachine) or mine.source is None:
        return False
    name = mine.source
    known = machine.engine.sources.get(name)
    if known is None or known.retired or machine.engine.watermark is None:
        return False
    world.judge.given_up.add(name)
    world.decide(lambda: machine.retire(name))
    return True


_KINDS: Mapping[str, Callable[[World, Fault], bool]] = {
    "crash": _crash,
    "lose": _lose,
    "leave": _leave,
    "join": _join,
    "replace": _replace,
    "pause": _pause,
    "cut": _cut,
    "split": _split,
    "slow": _slow,
    "restart": _restart,
    "setback": _setback,
    "shorten": _shorten,
    "respool": _respool,
    "refuse": _refuse,
    "move": _move,
    "assign": _assign,
    "kill": _kill,
    "full": _full,
    "clock_back": _clock_back,
    "takeover": _takeover,
    "spread": _spread,
    "add": _add,
    "remove": _remove,
    "retire": _retire,
}
