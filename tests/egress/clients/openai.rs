//! The package `openai`, with a server that talks as one of chat completions does.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::mpsc::channel;

use super::host::{FedBody, HostAnswer, PIECES_WAITING_MAX, answer_of};
use super::scene::{ClientScene, PYTHON, SECRET, held};

/// What the server says. The last piece is the key, which it knows.
const PIECES: [&str; 4] = ["Hello", ", ", "caller with ", SECRET];
/// How long the server waits until the client tells that it has a piece.
const HEARD_WITHIN: Duration = Duration::from_secs(60);
/// The key is the placeholder, in the variable that the package reads. Each piece is reported before the next one
/// is sent.
const CHAT: &str = r#"
import openai, os
client = openai.OpenAI(base_url=os.environ["URL"] + "/v1", max_retries=0)
assert client.api_key.startswith("cofferdam_secret_")
stream = client.chat.completions.create(
    model="scripted", messages=[{"role": "user", "content": "Hello?"}], stream=True)
for heard, chunk in enumerate(stream):
    print("piece", chunk.choices[0].delta.content)
    print("reported", client.post(f"/heard/{heard}", cast_to=object)["heard"])
"#;

/// How many pieces the client has told of.
#[derive(Default)]
struct Heard {
    pieces: Mutex<usize>,
    more: Condvar,
}

impl Heard {
    /// Waits until the client has told of `pieces`; whether it has.
    fn wait_for(&self, pieces: usize) -> bool {
        let told = self.pieces.lock().unwrap();
        let waited = self.more.wait_timeout_while(told, HEARD_WITHIN, |told| *told < pieces);
        !waited.unwrap().1.timed_out()
    }

    fn tell(&self, piece: usize) {
        *self.pieces.lock().unwrap() = piece + 1;
        self.more.notify_all();
    }
}

fn event(piece: &str) -> Bytes {
    let chunk = json!({
        "id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": null}],
    });
    format!("data: {chunk}\n\n").into()
}

/// Sends each piece when the one before was heard. Where one is not, the stream breaks off.
fn chat(heard: &Arc<Heard>) -> HostAnswer {
    let (sender, pieces) = channel(PIECES_WAITING_MAX);
    let heard = Arc::clone(heard);
    std::thread::spawn(move || {
        for (number, piece) in PIECES.into_iter().enumerate() {
            if !heard.wait_for(number) || sender.blocking_send(event(piece)).is_err() {
                return;
            }
        }
        // The client may have left.
        let _ = sender.blocking_send("data: [DONE]\n\n".into());
    });
    Response::builder().header("content-type", "text/event-stream").body(FedBody(pieces)).unwrap()
}

fn respond(heard: &Arc<Heard>, request: &Request<Bytes>) -> HostAnswer {
    let path = request.uri().path();
    if path == "/v1/chat/completions" {
        return chat(heard);
    }
    let Some(piece) = path.strip_prefix("/v1/heard/").and_then(|piece| piece.parse().ok()) else {
        return answer_of(StatusCode::NOT_FOUND, "text/plain", "no such path");
    };
    heard.tell(piece);
    answer_of(StatusCode::OK, "application/json", json!({"heard": piece}).to_string())
}

#[test]
#[ignore = "needs downloads: make test-egress-clients"]
fn openai_streams_a_chat_piece_by_piece_with_a_placeholder_as_its_key() {
    for protocols in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let heard = Arc::new(Heard::default());
        let shared = Arc::clone(&heard);
        let scene = ClientScene::with(protocols, &held(), move |request| respond(&shared, request));
        let Some(scene) = scene else { return };
        let scene = scene.with_downloaded();
        let printed = scene.run(&format!("{PYTHON} - <<'END'\n{CHAT}END"));
        let expected: String = ["Hello", ", ", "caller with ", "[redacted]"]
            .into_iter()
            .enumerate()
            .map(|(number, piece)| format!("piece {piece}\nreported {number}\n"))
            .collect();
        assert_eq!(printed, expected);
        assert_eq!(scene.seen_with_secret().len(), 1 + PIECES.len());
    }
}
