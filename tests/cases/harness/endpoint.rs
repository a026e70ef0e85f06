//! A server of chat completions whose answers are written before.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// What the server does with one request.
#[derive(Debug, Clone)]
pub enum Scripted {
    /// Answers with a status, headers and a body.
    Answer(u16, String, Vec<u8>),
    /// Sends these bytes and closes the connection.
    Raw(Vec<u8>),
    /// Answers nothing for so long.
    Silence(Duration),
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Came {
    /// The method and the path.
    pub line: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
}

/// A server on the loopback.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
}

impl Came {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The messages of the conversation.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().unwrap()
    }
}

impl Endpoint {
    /// A server that does what `script` says, and then answers with status 410.
    pub fn new(script: impl IntoIterator<Item = Scripted>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let came = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
        let noted = Arc::clone(&came);
        // It ends with the tests.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, noted) = (Arc::clone(&script), Arc::clone(&noted));
                thread::spawn(move || serve(stream, &script, &noted));
            }
        });
        Self { address, came }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The address and the port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// All requests so far.
    pub fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, script: &Mutex<VecDeque<Scripted>>, noted: &Mutex<Vec<Came>>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let step = script.lock().unwrap().pop_front();
    noted.lock().unwrap().push(Came { line: line.trim_end().to_owned(), headers, body });
    let mut stream = reader.into_inner();
    // The client may have given up.
    let _ = match step.unwrap_or(Scripted::Answer(410, String::new(), Vec::new())) {
        Scripted::Answer(status, headers, body) => {
            let head =
                format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.into_bytes(), body].concat())
        }
        Scripted::Raw(bytes) => stream.write_all(&bytes),
        Scripted::Silence(time) => {
            thread::sleep(time);
            Ok(())
        }
    };
}

/// An answer with a JSON body.
pub fn answer(status: u16, headers: &str, body: &Value) -> Scripted {
    Scripted::Answer(status, headers.to_owned(), body.to_string().into_bytes())
}

/// A completion with this message.
pub fn completion(message: &Value, finish_reason: &str) -> Scripted {
    let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason});
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100});
    answer(200, "", &json!({"id": "x", "choices": [choice], "usage": usage}))
}

/// A message that ends the model's turn.
pub fn says(text: &str) -> Scripted {
    completion(&json!({"role": "assistant", "content": text}), "stop")
}

/// A message that asks for tools, as `(name, arguments)`.
pub fn asks(calls: &[(&str, &str)]) -> Scripted {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, (name, arguments))| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"id": format!("c{index}"), "type": "function", "function": function})
        })
        .collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    completion(&message, "tool_calls")
}
