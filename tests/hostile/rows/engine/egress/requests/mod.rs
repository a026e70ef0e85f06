//! Rules over requests, and secrets that are added on the way out.

mod answers;
mod authorities;
mod judged;
mod names;
mod placeholders;
mod reflections;
mod scene;
mod spent;
mod versions;

use crate::Row;

pub const ROWS: &[Row] = &[
    Row {
        id: "W186",
        guarantee: "no :authority of HTTP/2 is judged for one host and sent to another: a foreign one is 421, a malformed one is not sent",
        attack: authorities::of_http2,
    },
    Row {
        id: "W187",
        guarantee: "tunnel, TLS, first line and Host name one host in every pair, though each of them has rules",
        attack: authorities::that_differ_in_pairs,
    },
    Row {
        id: "W188",
        guarantee: "the authority of a sandbox speaks for no other name, address or host without rules, and no certificate of a program changes that",
        attack: authorities::in_certificates,
    },
    Row {
        id: "W189",
        guarantee: "the address that is judged is the one that is connected to, however often a name moves",
        attack: names::that_move,
    },
    Row {
        id: "W190",
        guarantee: "no spelling of a name fits the entry of another: case and one final dot alone make no difference",
        attack: names::in_other_spellings,
    },
    Row {
        id: "W191",
        guarantee: "a redirect to another host takes no placeholder and no secret there",
        attack: placeholders::in_redirects,
    },
    Row {
        id: "W192",
        guarantee: "a placeholder in a URL, in whatever spelling or place, is sent nowhere",
        attack: placeholders::in_urls,
    },
    Row {
        id: "W193",
        guarantee: "a placeholder in any of several lines or values of a header goes to no other host, and one that is cut stands for nothing",
        attack: placeholders::in_several_lines,
    },
    Row {
        id: "W194",
        guarantee: "a placeholder in credentials of Basic goes to no other host",
        attack: placeholders::in_basic_credentials,
    },
    Row {
        id: "W195",
        guarantee: "a placeholder in a header or trailer that its host might show is not sent, to its own host neither",
        attack: placeholders::in_other_places,
    },
    Row {
        id: "W196",
        guarantee: "a secret in the status line, headers, their names or trailers of an answer does not reach the program",
        attack: reflections::in_heads_and_trailers,
    },
    Row {
        id: "W197",
        guarantee: "a secret in base64 at any alignment, or with escapes of URLs or JSON, however its body is framed and cut, does not reach the program",
        attack: reflections::in_bodies,
    },
    Row {
        id: "W198",
        guarantee: "no encoded or partial answer to a request with a secret passes, and none is asked for",
        attack: reflections::in_parts_and_encodings,
    },
    Row {
        id: "W199",
        guarantee: "no request becomes a WebSocket or another protocol without leave of its rule",
        attack: judged::websockets_without_leave,
    },
    Row {
        id: "W200",
        guarantee: "no TRACE leaves a sandbox, and no tunnel within a tunnel",
        attack: judged::tunnels_and_traces_within,
    },
    Row {
        id: "W201",
        guarantee: "a path is judged in the form in which it is sent, and none that can be read in two ways is sent",
        attack: judged::paths_in_other_spellings,
    },
    Row {
        id: "W202",
        guarantee: "each request of a kept connection is decided over by its own rule, and has the secret of no other",
        attack: judged::another_rule_on_a_kept_connection,
    },
    Row {
        id: "W203",
        guarantee: "what follows a refused request that expects 100-continue is no request",
        attack: judged::bodies_that_wait_for_leave,
    },
    Row {
        id: "W204",
        guarantee: "no header, path, method or body of HTTP/2 becomes another request of HTTP/1",
        attack: versions::smuggled_into_http1,
    },
    Row {
        id: "W205",
        guarantee: "a program that opens and gives up streams without end is sent away, no other waits for it, and none passes unjudged",
        attack: versions::streams_given_up,
    },
    Row {
        id: "W206",
        guarantee: "heads without end, of requests and of answers, are refused",
        attack: spent::heads_without_end,
    },
    Row {
        id: "W207",
        guarantee: "heads, bodies and answers that do not come hold up no other request, and end",
        attack: spent::requests_that_do_not_end,
    },
    Row {
        id: "W208",
        guarantee: "of 64 requests at once exactly as many pass as their rule allows",
        attack: spent::more_requests_than_a_rule_allows,
    },
    Row {
        id: "W209",
        guarantee: "no body passes more bytes than its rule allows, and one that is cut does not look whole",
        attack: spent::more_bytes_than_a_rule_allows,
    },
    Row {
        id: "W210",
        guarantee: "whatever a host answers, the program gets one well-framed answer to its own request, or a refusal, in time",
        attack: answers::of_http1,
    },
    Row {
        id: "W211",
        guarantee: "a host that floods, resets or never ends frames of HTTP/2 takes no memory and holds up no other",
        attack: answers::of_http2,
    },
];
