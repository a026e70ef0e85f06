python3 - <<'END'
import h11

connection = h11.Connection(h11.SERVER)
connection.receive_data(b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
connection.receive_data(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n")
request = connection.next_event()
assert (request.method, request.target) == (b"POST", b"/a"), request
body = b""
while not isinstance(event := connection.next_event(), h11.EndOfMessage):
    body += event.data
assert body == b"abcde", body
assert list(event.headers) == [(b"t", b"v")], event
connection.send(h11.Response(status_code=204, headers=[]))

broken = h11.Connection(h11.SERVER)
broken.receive_data(b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n")
broken.next_event()
try:
    broken.next_event()
except h11.RemoteProtocolError:
    pass
else:
    raise AssertionError("a length that is no number was taken")
END
