"""The proxy's door, and that of the way out, in a box whose network is its own.

A tiny program inside makes sockets that listen on the box's own 127.0.0.1, hands them out, and is gone: the eval
process accepts on them directly. Nothing stands between, and nothing else of this machine is reached.

    async with doors.opened(needs) as made:                         # bwrap: an inherited descriptor
        start(made.argv(python, then=("sleep", "inf")), pass_fds=(made.descriptor,))
        await made.arrived(ended)
        made.url, made.egress_url                                   # as seen from inside

    async with doors.opened(needs, folder) as made:                 # docker: `folder` is mounted at `inside`
        start(made.argv(python, inside="/hotswap/doors"))

`python` is the beginning of an argv that starts a bare Python in the box, `-I -S` and all, such as that of
`provision.portable`. The program is given by `-c`: it needs no file there. With `then` it becomes that program.

On the wire: one datagram of a Unix socket, with a word that only this start was told, and the sockets. What else comes
is dropped, its descriptors closed. The first that is right ends it: nobody hears what a box sends afterwards.

A Unix socket does not pass the border of a virtual machine (Docker Desktop), nor that to another host: there, a port
is forwarded.
"""

from hotswap.doors.doors import Doors, opened

__all__ = ["Doors", "opened"]
