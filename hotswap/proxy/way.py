"""How a call goes up: as the program sent it but for what the run sets, or translated for an endpoint that does not
speak the program's dialect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from hotswap import capture
from hotswap.capture.chat import Asking, ask
from hotswap.contracts.model import Upstream
from hotswap.dialects import Contradiction, Dialect, known
from hotswap.proxy.capturing import Capturing
from hotswap.proxy.session import Call, Session
from hotswap.proxy.upstream import Target, clean_query, headers_up, join

if TYPE_CHECKING:
    from hotswap.translation import Translated, Translation

NOTHING = Asking()


class NoWay(Exception):
    """The endpoint cannot be asked this. The message says why."""


@dataclass(frozen=True)
class Way:
    """A call as it goes up, and who reads what comes back."""

    target: Target
    dialect: Dialect
    """The endpoint's."""
    translated: Translated | None = None
    """Turns what comes back into the program's dialect; null where it goes down as it comes."""
    streams: bool = False
    """The endpoint is asked for a stream."""
    capturing: Capturing | None = None
    """Takes the ids of tokens out of what comes back."""


def find_way(session: Session, call: Call, tail: str, request: web.BaseRequest) -> Way:
    """Get the way up of a call, and note in its record what of it is not the program's. Raises NoWay."""
    upstream = session.request.upstream
    spoken = upstream.dialects if session.request.capture is None else (capture.DIALECT,)
    if call.dialect.name in spoken or not call.body.readable:
        asking = _asking(session, call.body.fields)
        target = _relayed(session, call, tail, request, asking)
        return Way(target, call.dialect, None, call.streams, session.capturing(call, asking))
    if call.body.unread is not None:
        raise NoWay(
            f"the endpoint does not speak {call.dialect.name}, and this is not read: {call.body.unread}"
        )
    from hotswap.translation import between  # loaded only when used

    for name in spoken:
        translation = between(call.dialect.name, name)
        if translation is not None:
            return _translated(session, call, translation, known()[name], request)
    names = ", ".join(spoken)
    raise NoWay(f"the endpoint speaks {names}, and {call.dialect.name} cannot be translated into that")


def _asking(session: Session, fields: Mapping[str, Any]) -> Asking:
    """Get what is changed in a request so that its answer has ids of tokens; nothing where none are captured."""
    return NOTHING if session.request.capture is None else ask(fields)


def _relayed(session: Session, call: Call, tail: str, request: web.BaseRequest, asking: Asking) -> Target:
    upstream, dialect, fields = session.request.upstream, call.dialect, call.body.fields
    imposed = _impose(session, dialect, fields, upstream.model) if call.body.readable else {}
    dropped = [name for name in upstream.drop if name in fields or name in imposed]
    imposed = {name: value for name, value in imposed.items() if name not in dropped}
    body = call.body.change({**imposed, **asking.added}, [*dropped, *asking.left_out])
    address = dialect.address(tail, upstream.model)
    changed = [*dialect.yields(fields, imposed), *_unpacked(request), *_unsaid(session, dialect)]
    _note(call, {**fields, **imposed}, [*dropped, *changed], dialect, address)
    url = join(upstream.url, address, dialect.version, _query(request))
    return Target(url, headers_up(request.headers, upstream, dialect), body, request.method)


def _translated(
    session: Session, call: Call, translation: Translation, endpoint: Dialect, request: web.BaseRequest
) -> Way:
    from hotswap.translation import Untranslatable

    upstream, fields = session.request.upstream, whole_fields(call)
    model = upstream.model or call.dialect.read_model(fields, request.path)
    try:
        streams = call.streams and call.dialect.sends_events(_query(request))
        said = translation.open(fields, model, streams)
    except Untranslatable as error:
        raise NoWay(str(error)) from error
    imposed = _impose(session, endpoint, said.fields, model)
    dropped = [name for name in upstream.drop if name in said.fields or name in imposed]
    sent = {name: value for name, value in {**said.fields, **imposed}.items() if name not in dropped}
    _note(call, sent, [*said.dropped, *dropped, *_unsaid(session, endpoint)], endpoint, said.tail)
    call.record.translated = endpoint.name
    asking = _asking(session, sent)
    sent = {name: value for name, value in sent.items() if name not in asking.left_out} | dict(asking.added)
    url = join(upstream.url, endpoint.address(said.tail, model), endpoint.version, "")
    headers = headers_up(request.headers, upstream, endpoint)
    headers["Content-Type"] = "application/json"
    target = Target(url, headers, (json.dumps(sent).encode(),))
    return Way(target, endpoint, said, streams, session.capturing(call, asking))


def whole_fields(call: Call) -> dict[str, Any]:
    """Get a request's fields with its whole conversation: only what is new of it has been read."""
    fields: dict[str, Any] = json.loads(bytes(call.body.raw))
    return fields


def _impose(session: Session, dialect: Dialect, fields: Mapping[str, Any], model: str) -> dict[str, Any]:
    try:
        return dialect.impose(fields, model, _sampling(session))
    except Contradiction as error:
        raise NoWay(str(error)) from error


def _unpacked(request: web.BaseRequest) -> list[str]:
    """A packed body goes up as what was in it."""
    return ["Content-Encoding"] if request.headers.get("Content-Encoding", "identity") != "identity" else []


def _query(request: web.BaseRequest) -> str:
    return clean_query(request.raw_path.partition("?")[2])


def _sampling(session: Session) -> Mapping[str, Any]:
    return {**session.request.upstream.sampling, **session.request.sampling}


def _unsaid(session: Session, endpoint: Dialect) -> list[str]:
    """What the run sets and the endpoint's dialect cannot say."""
    wanted = _sampling(session)
    return [f"sampling.{name}" for name in sorted(endpoint.unsaid) if wanted.get(name) is not None]


def _note(call: Call, sent: Mapping[str, Any], dropped: Iterable[str], dialect: Dialect, tail: str) -> None:
    call.record.dropped = list(dropped)
    left = {name: value for name, value in sent.items() if name not in call.record.dropped}
    call.record.sampling = dialect.read_sampling(left)
    call.record.model = dialect.read_model(left, tail)


def beside(upstream: Upstream, path: str, request: web.BaseRequest, dialect: Dialect, body: bytes) -> Target:
    """Get a request that is no call as it goes up, to the same path below the endpoint's address."""
    url = join(upstream.url, path, dialect.version, _query(request))
    return Target(url, headers_up(request.headers, upstream, dialect), (body,), request.method)
