import pytest

from app.runtime.models.sse import FrameReader, FrameTooLarge


def read(*pieces: bytes, limit: int = 10_000) -> list[bytes]:
    reader = FrameReader(limit)
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    return [data for _, data in frames + reader.finish()]


def test_a_frame_may_arrive_byte_by_byte() -> None:
    body = b'data: {"a":1}\n\ndata: two\n\n'
    assert read(*(body[i : i + 1] for i in range(len(body)))) == [b'{"a":1}', b"two"]


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"a":1}\n\n',
        b'event: x\ndata: {"a":1}\n\n',
        b'event:x\ndata: {"a":1}\n\n',
        b'event:  x \ndata: {"a":1}\n\n',
        b'data: {"a":\ndata: {1}\n\n',
        b'event: x\nevent: y\ndata: {"a":1}\n\n',
        b': ping\ndata: {"a":1}\n\n',
        b'data: {"a":\r1}\n\n',
        b'data: {"a":1}\r\n\n',
        b'data: {"a":1}\n\n\n',
        b'\ndata: {"a":1}\n\n',
        b"data: {\n\n",
        b"data: [DONE]\n\n",
        b"data:\n\n",
        b"\n\n",
    ],
)
def test_a_chunk_that_is_one_frame_is_read_as_its_bytes_are(body: bytes) -> None:
    whole, bytewise = FrameReader(100), FrameReader(100)
    for _ in range(2):  # the first one also looks for a byte order mark
        frames = whole.feed(body)
        assert frames == [frame for i in range(len(body)) for frame in bytewise.feed(body[i : i + 1])]


def test_a_frame_that_is_too_large_is_refused_in_one_chunk() -> None:
    reader = FrameReader(10)
    reader.feed(b"data: {}\n\n")
    with pytest.raises(FrameTooLarge):
        reader.feed(b'data: {"a":"too large"}\n\n')


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_with_lf_crlf_or_cr(end: bytes) -> None:
    body = end.join([b"event: x", b"data: one", b"data: two", b"", b"data: three", b"", b""])
    whole, bytewise = read(body), read(*(body[i : i + 1] for i in range(len(body))))
    assert whole == bytewise == [b"one\ntwo", b"three"]


def test_unicode_line_separators_are_text_also_when_cut() -> None:
    text = "a\u2028b\x85c\u2029d".encode()
    body = b"data: " + text + b"\n\n"
    for cut in range(len(body)):
        assert read(body[:cut], body[cut:]) == [text]


def test_keepalives_comments_and_other_fields_make_no_frame() -> None:
    body = b": ping\n\ndata:\n\ndata:  \n\nid: 7\nretry: 1\n\ndata: x\nid: 8\n\n"
    assert read(body) == [b"x"]


def test_only_one_space_after_the_colon_is_not_data() -> None:
    assert read(b"data:  x \n\ndata:y\n\n") == [b" x ", b"y"]


def test_the_name_of_an_event_goes_with_its_frame() -> None:
    reader = FrameReader(100)
    assert reader.feed(b"event: error\ndata: x\n\ndata: y\n\n") == [(b"error", b"x"), (b"", b"y")]


def test_a_byte_order_mark_is_no_text_also_when_cut() -> None:
    body = b"\xef\xbb\xbfdata: x\n\n"
    for cut in range(len(body)):
        assert read(body[:cut], body[cut:]) == [b"x"]


def test_a_last_frame_without_its_blank_line_is_handed_out() -> None:
    assert read(b"data: one\n\ndata: two") == [b"one", b"two"]


def test_nothing_comes_of_an_empty_stream() -> None:
    assert read() == read(b"") == read(b"\n\n\n") == []


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * 200 + b"\n\n"],
        [b"data: " + b"x" * 60, b"x" * 60, b"x" * 60],
        [b"data: " + b"x" * 30 + b"\n"] * 5,
        [b"data:\n"] * 200,
    ],
)
def test_a_frame_beyond_the_limit_is_refused_before_it_is_whole(pieces: list[bytes]) -> None:
    with pytest.raises(FrameTooLarge, match="100"):
        read(*pieces, limit=100)


def test_the_limit_is_for_each_frame_not_for_the_stream() -> None:
    assert len(read(*[b"data: " + b"x" * 60 + b"\n\n"] * 50, limit=100)) == 50
