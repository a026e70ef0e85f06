import h11
import pytest

HEAD = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def events(*pieces):
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(HEAD)
    found = []
    for piece in pieces:
        connection.receive_data(piece)
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            found.append(event)
            if isinstance(event, h11.EndOfMessage):
                return found
    return found


@pytest.mark.parametrize(
    "pieces",
    [(b"3\r\nabc__",), (b"3\r\nabc_\n",), (b"3\r\nabc\r", b"_0")],
    ids=["at once", "two bytes", "byte by byte"],
)
def test_a_chunk_with_another_end_is_refused(pieces):
    with pytest.raises(h11.RemoteProtocolError):
        events(*pieces)


@pytest.mark.parametrize(
    "pieces",
    [(b"3\r\nabc\r\n0\r\n\r\n",), (b"3\r\nabc", b"\r", b"\n0\r\n\r\n")],
    ids=["at once", "byte by byte"],
)
def test_a_chunk_with_its_end_is_taken(pieces):
    assert isinstance(events(*pieces)[-1], h11.EndOfMessage)


def test_a_request_has_its_body_and_trailers():
    request, *data, end = events(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n")
    assert (request.method, request.target) == (b"POST", b"/a")
    assert b"".join(piece.data for piece in data) == b"abcde"
    assert list(end.headers) == [(b"t", b"v")]


def test_a_length_that_is_no_number_is_refused():
    with pytest.raises(h11.RemoteProtocolError):
        events(b"x\r\n")
