"""Payloads in messages are kept once, under their hash, and a reference stands in their place."""

import base64
import json
import os
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotswap.blobs import LEAST, Blobs

IMAGE = bytes(range(256)) * 8
TEXT = base64.b64encode(IMAGE).decode()
URL = f"data:image/png;base64,{TEXT}"


def reference(media_type: str, payload: bytes = IMAGE) -> dict[str, Any]:
    return {
        "blob": f"sha256:{sha256(payload).hexdigest()}",
        "media_type": media_type,
        "bytes": len(payload),
    }


PLACES: dict[str, tuple[Any, Any]] = {
    "an image of the chat dialect": (
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": reference("image/png"), "detail": "low"}},
    ),
    "sound of the chat dialect": (
        {"type": "input_audio", "input_audio": {"data": TEXT, "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": reference("audio/wav"), "format": "wav"}},
    ),
    "a file of the chat dialect": (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{TEXT}"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": reference("application/pdf")}},
    ),
    "an image of the responses dialect": (
        {"type": "input_image", "image_url": URL},
        {"type": "input_image", "image_url": reference("image/png")},
    ),
    "a file of the responses dialect": (
        {"type": "input_file", "filename": "a.pdf", "file_data": TEXT},
        {"type": "input_file", "filename": "a.pdf", "file_data": reference("application/pdf")},
    ),
    "a file without a name": (
        {"type": "input_file", "file_data": TEXT},
        {"type": "input_file", "file_data": reference("application/octet-stream")},
    ),
    "a picture that the model made": (
        {"type": "image_generation_call", "id": "ig", "result": TEXT, "output_format": "webp"},
        {
            "type": "image_generation_call",
            "id": "ig",
            "result": reference("image/webp"),
            "output_format": "webp",
        },
    ),
    "an image of the messages dialect": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": TEXT}},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/jpeg", "data": reference("image/jpeg")},
        },
    ),
    "an image in a tool's result": (
        {
            "type": "tool_result",
            "content": [{"type": "image", "source": {"media_type": "image/gif", "data": TEXT}}],
        },
        {
            "type": "tool_result",
            "content": [
                {"type": "image", "source": {"media_type": "image/gif", "data": reference("image/gif")}}
            ],
        },
    ),
    "an image of the gemini dialect": (
        {"inlineData": {"mimeType": "image/png", "data": TEXT}},
        {"inlineData": {"mimeType": "image/png", "data": reference("image/png")}},
    ),
    "an answer that was spoken": (
        {"audio": {"id": "a", "data": TEXT, "transcript": "hi"}},
        {"audio": {"id": "a", "data": reference("application/octet-stream"), "transcript": "hi"}},
    ),
}


@pytest.mark.parametrize(("part", "reduced"), PLACES.values(), ids=PLACES)
def test_a_payload_becomes_a_reference_that_reads_as_the_same_bytes(
    tmp_path: Path, part: Any, reduced: Any
) -> None:
    blobs, before = Blobs(tmp_path / "blobs"), json.dumps(part)
    said = {"type": "text", "text": "see"}
    taken = blobs.take([said, part])
    assert taken == [said, reduced]
    assert json.dumps(part) == before
    assert [path.name for path in blobs.folder.iterdir()] == [sha256(IMAGE).hexdigest()]
    assert blobs.read(reference("image/png")) == blobs.read(reference("image/png")["blob"]) == IMAGE


LEFT: dict[str, Any] = {
    "text": "x" * 5_000,
    "null": None,
    "a small image": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
    "an image elsewhere": [{"type": "image_url", "image_url": {"url": "https://example.com/" + "a" * 2_000}}],
    "no base64": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "*" * 2_000}}],
    "text that looks like an image": [{"type": "text", "text": URL}],
    "a document that is text": [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TEXT}}
    ],
    "a tool's arguments": [{"type": "tool_use", "input": {"data": TEXT, "media_type": "image/png"}}],
    "data of no known kind": [{"type": "odd", "data": TEXT}],
    "letters that are not ASCII": [{"source": {"media_type": "image/png", "data": "é" * 2_000}}],
    "odd parts": [None, 3, [[]], {"data": None, "media_type": 1}],
}


@pytest.mark.parametrize("content", LEFT.values(), ids=LEFT)
def test_what_is_no_payload_stays_the_same_object_and_makes_no_folder(tmp_path: Path, content: Any) -> None:
    blobs = Blobs(tmp_path / "blobs")
    assert blobs.take(content) is content
    assert not blobs.folder.exists()


@pytest.mark.parametrize("spelled", [TEXT.rstrip("="), base64.encodebytes(IMAGE).decode()])
def test_the_same_image_in_another_spelling_is_the_same(tmp_path: Path, spelled: str) -> None:
    blobs = Blobs(tmp_path)
    source = {"media_type": "image/png", "data": spelled}
    assert blobs.take([{"source": source}]) == blobs.take([{"source": {**source, "data": TEXT}}])
    assert len(list(tmp_path.iterdir())) == 1


def test_a_payload_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    Blobs(tmp_path).take([{"type": "input_image", "image_url": URL}])
    [path] = tmp_path.iterdir()
    os.utime(path, (1, 1))
    Blobs(tmp_path).take([{"type": "input_image", "image_url": URL}])
    assert path.stat().st_mtime == 1


def test_many_writers_of_one_payload_leave_one_whole_file(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def write() -> None:
        start.wait()
        Blobs(tmp_path / "blobs").take([{"type": "input_image", "image_url": URL}])

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [path] = (tmp_path / "blobs").iterdir()
    assert path.read_bytes() == IMAGE


def test_where_nothing_can_be_written_the_payload_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    content = [{"type": "input_image", "image_url": URL}]
    assert Blobs(tmp_path / "file").take(content) is content


@pytest.mark.parametrize("name", ["sha256:../../etc/passwd", "sha256:", "", {"blob": 1}, {}])
def test_a_reference_that_names_no_blob_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ValueError, match="names no blob"):
        Blobs(tmp_path).read(name)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("A" * LEAST) | st.just(URL),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "data", "media_type", "url", "file_data", "filename", "result", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@example(content={"data": "A" * LEAST, "media_type": URL})
@given(content=VALUES)
def test_odd_content_never_raises_and_is_reduced_once(
    tmp_path_factory: pytest.TempPathFactory, content: Any
) -> None:
    blobs = Blobs(tmp_path_factory.getbasetemp() / "odd")
    taken = blobs.take(content)
    assert blobs.take(taken) is taken


def test_content_nested_beyond_measure_is_left_alone(tmp_path: Path) -> None:
    content: Any = []
    for _ in range(10_000):
        content = [content]
    assert Blobs(tmp_path).take(content) is content
