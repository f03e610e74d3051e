"""`headwater source`: what an operator decides about the sources of a running tree."""

from __future__ import annotations

import json

import click

from headwater_cli import client

_incarnation = click.option(
    "--incarnation", type=click.IntRange(1, 2**32 - 1), help="Which one of that name.  [default: the latest]"
)
_as_lines = click.option("--json", "as_lines", is_flag=True, help="The answer as JSON.")


@click.group()
def source() -> None:
    """Give up sources of a running tree or records, end a quarantine, say who reads a source.

    \b
    headwater source retire boiler-7
    headwater source skip boiler-7 1204
    headwater source release boiler-7
    headwater source assign boiler-7 l1-2

    headwater status shows the sources. What is decided is a record of the root's log: it holds whatever is
    started again, a skip as long as the spool of its source has the record.
    """


@source.command()
@click.argument("name")
@_incarnation
@_as_lines
@client.at_root
def retire(name: str, incarnation: int | None, as_lines: bool, root: client.At) -> None:
    """Give up the source NAME: no window waits for it any more.

    What was counted of it stays. If it returns it is another incarnation, and goes on behind that.

    \b
    headwater source retire boiler-7
    """
    with client.connected(root) as reached:
        reply = reached.retire(name, incarnation)
    given = reply.source
    if as_lines:
        told = {"name": given.name, "incarnation": given.incarnation, "counted_to": reply.counted_to}
        click.echo(json.dumps(told))
        return
    click.echo(
        f"{given.name}: incarnation {given.incarnation} is retired, counted up to record "
        f"{reply.counted_to:,}; if it returns it is incarnation {given.incarnation + 1}"
    )


@source.command()
@click.argument("name")
@click.argument("seq", type=click.IntRange(1, 2**63 - 1))
@_incarnation
@_as_lines
@client.at_root
def skip(name: str, seq: int, incarnation: int | None, as_lines: bool, root: client.At) -> None:
    """Never read record SEQ of the source NAME, such as one that lies too far in the future.

    It is meant for the record that a source waits with: headwater status names it, and the log of its child
    as seq. The record is lost: the account of the source has it as rejected.

    A skip is of a record that the spool of the source has. If the spool is opened again without it, the skip
    lapses, and what is written under that number then is read. So a skip of a record that is not written yet
    holds only until the source is started again.

    \b
    headwater source skip boiler-7 1204
    """
    with client.connected(root) as reached:
        reply = reached.skip(name, incarnation, seq)
    given = reply.source
    if as_lines:
        told = {"name": given.name, "incarnation": given.incarnation, "seq": seq, "position": reply.position}
        click.echo(json.dumps({**told, "counted_to": reply.counted_to}))
        return
    click.echo(
        f"{given.name}: record {seq:,} is passed over when it comes, by record {reply.position:,} of the "
        "log, unless the spool is opened again without it"
    )
    if seq > reply.counted_to + 1:
        click.echo(
            f"{given.name} is counted up to record {reply.counted_to:,}: if it waits, then with record "
            f"{reply.counted_to + 1:,}, or with a later one if more of it is on the way; headwater "
            "status says which"
        )


@source.command()
@click.argument("name")
@click.argument("child")
@_as_lines
@client.at_root
def assign(name: str, child: str, as_lines: bool, root: client.At) -> None:
    """Have the source NAME read by CHILD from now on.

    It turns there as soon as it hears of it, and sends again what is not counted yet: nothing is lost, and
    nothing counted twice. If it cannot reach that child it goes back to where it began.

    \b
    headwater source assign boiler-7 l1-2
    """
    with client.connected(root) as reached:
        known = reached.knows(name)
        moved = reached.assign({name: child})
    if as_lines:
        click.echo(json.dumps({"name": name, "child": child, "moved": bool(moved), "known": known}))
    elif not known:
        click.echo(f"{name}: nobody of that name has said hello yet; when it does, it is read by {child}")
    else:
        click.echo(f"{name}: is read by {child}" + ("" if moved else ", as it was before"))


@source.command()
@click.argument("name")
@_as_lines
@client.at_root
def release(name: str, as_lines: bool, root: client.At) -> None:
    """Take the source NAME out of quarantine.

    A source that has brought more distinct keys than limits.keysPerSource is in quarantine: what was counted
    of it stays, and nothing more of it is taken. When it is released it comes back as its next incarnation,
    goes on behind what was counted, and may bring as many keys again.

    The windows of the others close meanwhile. What was held back is in the spool, and comes in as late where
    the watermark has passed it by the time of the release; headwater status says how much that was.

    \b
    headwater source release boiler-7
    """
    with client.connected(root) as reached:
        reply = reached.release(name)
    given = reply.source
    if as_lines:
        told = {"name": given.name, "released": reply.released, "incarnation": given.incarnation}
        click.echo(json.dumps({**told, "counted_to": reply.counted_to}))
    elif reply.released:
        click.echo(
            f"{given.name}: released; counted up to record {reply.counted_to:,}, it goes on behind that as "
            f"incarnation {given.incarnation + 1} when it says hello next, within a minute; what the "
            "watermark has passed by then is late, and in no window"
        )
    else:
        click.echo(f"{given.name}: is not in quarantine; nothing was changed")
