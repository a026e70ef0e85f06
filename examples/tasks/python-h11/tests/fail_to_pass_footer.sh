python3 - <<'END'
import h11

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def refuses(*pieces):
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(HEAD)
    for piece in pieces:
        connection.receive_data(piece)
        try:
            while connection.next_event() is not h11.NEED_DATA:
                pass
        except h11.RemoteProtocolError:
            return True
    return False


for pieces in [(b"3\r\nabc__",), (b"3\r\nabc\r_",), (b"3\r\nabc_\n",), (b"3\r\nabc\r", b"_0")]:
    assert refuses(*pieces), pieces
for pieces in [(b"3\r\nabc\r\n0\r\n\r\n",), (b"3\r\nabc", b"\r", b"\n0\r\n\r\n")]:
    assert not refuses(*pieces), pieces
END
