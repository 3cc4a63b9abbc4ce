import _socket  # `socket` itself would double the time that this program takes: selectors, enum, collections
import os
import sys

to, word, count, *rest = sys.argv[1:]
if to.isdigit():
    way = _socket.socket(fileno=int(to))
else:
    way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    way.connect(to)
listeners = []
for _ in range(int(count)):
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    listeners.append(listener)
numbers = b"".join(each.fileno().to_bytes(4, sys.byteorder) for each in listeners)
way.sendmsg([word.encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
os.set_inheritable(way.fileno(), False)
if rest:
    os.execvp(rest[0], rest)
