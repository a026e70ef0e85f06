//! The JSON of chat completions (pure).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::case::harness::end::AgentTokens;

/// What the model answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ModelReply {
    /// Its text; that of a refusal, if it refuses.
    pub(super) text: String,
    /// The tools that it asks for.
    pub(super) calls: Vec<ToolRequest>,
    /// Why it stopped.
    pub(super) finish: FinishReason,
    /// What it read and wrote, if the endpoint says so.
    pub(super) tokens: Option<AgentTokens>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FinishReason {
    /// It has said what it wants to say, or asks for tools.
    #[default]
    Stop,
    /// At the limit on its length.
    Length,
    /// The endpoint's filter.
    ContentFilter,
}

/// A tool that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolRequest {
    /// What the answer refers to.
    pub(super) id: String,
    /// The tool.
    pub(super) name: String,
    /// Its arguments, which should be a JSON object.
    pub(super) arguments: String,
}

impl FinishReason {
    /// Its word on the wire.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// The body of a request.
pub(super) fn request_body(
    model: &str,
    temperature: Option<f64>,
    messages: &[Value],
    tools: &Value,
) -> Vec<u8> {
    let mut body = json!({"model": model, "messages": messages, "tools": tools});
    if let (Some(temperature), Some(object)) = (temperature, body.as_object_mut()) {
        object.insert("temperature".to_owned(), temperature.into());
    }
    body.to_string().into_bytes()
}

/// The message of the model, as the next request repeats it.
pub(super) fn assistant_message(reply: &ModelReply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    if let (false, Some(object)) = (reply.calls.is_empty(), message.as_object_mut()) {
        let call = |ToolRequest { id, name, arguments }: &ToolRequest| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"id": id, "type": "function", "function": function})
        };
        object.insert("tool_calls".to_owned(), reply.calls.iter().map(call).collect());
    }
    message
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<Value>,
    refusal: Option<String>,
    tool_calls: Option<Vec<WrittenCall>>,
}

#[derive(Deserialize)]
struct WrittenCall {
    id: Option<String>,
    function: Option<WrittenFunction>,
}

#[derive(Deserialize)]
struct WrittenFunction {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

/// Reads the body of an answer with status 200.
///
/// # Errors
/// It is none, as a clause.
pub(super) fn parse_reply(body: &[u8]) -> Result<ModelReply, String> {
    let completion: Completion = serde_json::from_slice(body)
        .map_err(|error| format!("the answer is malformed: {error}"))?;
    let tokens = completion.usage.map(|usage| AgentTokens {
        read: usage.prompt_tokens.unwrap_or_default(),
        written: usage.completion_tokens.unwrap_or_default(),
    });
    let Some(Choice { message, finish_reason }) = completion.choices.into_iter().next() else {
        return Err("the answer has no choices".to_owned());
    };
    let text = text_of(message.content.as_ref());
    let refusal = message.refusal.unwrap_or_default();
    let calls = message.tool_calls.unwrap_or_default().into_iter().enumerate();
    Ok(ModelReply {
        text: if text.is_empty() { refusal } else { text },
        calls: calls.map(|(index, call)| call.read(index)).collect(),
        finish: match finish_reason.as_deref() {
            Some("length") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            _ => FinishReason::Stop,
        },
        tokens,
    })
}

impl WrittenCall {
    fn read(self, index: usize) -> ToolRequest {
        let function = self.function.unwrap_or(WrittenFunction { name: None, arguments: None });
        let arguments = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            // Some endpoints write the object itself.
            Some(other) => other.to_string(),
        };
        let id = self.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{index}"));
        ToolRequest { id, name: function.name.unwrap_or_default(), arguments }
    }
}

/// The text of a message: a string, or the texts of its parts.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(message: &Value, finish: &str) -> ModelReply {
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        let usage = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7});
        let body = json!({"id": "x", "choices": [choice], "usage": usage}).to_string();
        parse_reply(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_reply_has_its_text_calls_and_reason() {
        for (message, finish, text, calls, reason) in [
            (json!({"content": "hi"}), "stop", "hi", 0, FinishReason::Stop),
            (json!({"content": null}), "stop", "", 0, FinishReason::Stop),
            (json!({}), "stop", "", 0, FinishReason::Stop),
            (json!({"content": "half"}), "length", "half", 0, FinishReason::Length),
            (json!({"content": ""}), "content_filter", "", 0, FinishReason::ContentFilter),
            (json!({"content": null, "refusal": "no"}), "stop", "no", 0, FinishReason::Stop),
            (
                json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                "stop",
                "ab",
                0,
                FinishReason::Stop,
            ),
            (
                json!({"content": null, "tool_calls": [{"id": "1"}, {"function": {}}]}),
                "tool_calls",
                "",
                2,
                FinishReason::Stop,
            ),
        ] {
            let reply = reply(&message, finish);
            let found = (reply.text.as_str(), reply.calls.len(), reply.finish);
            assert_eq!(found, (text, calls, reason));
            assert_eq!(reply.tokens, Some(AgentTokens { read: 5, written: 2 }));
        }
    }

    #[test]
    fn a_call_is_repeated_as_the_model_wrote_it() {
        let call = |id: Value, arguments: Value| {
            let function = json!({"name": "bash", "arguments": arguments});
            json!({"id": id, "type": "function", "function": function})
        };
        for (written, id, arguments) in [
            (call(json!("a"), json!("{\"command\": \"ls\"}")), "a", "{\"command\": \"ls\"}"),
            (call(json!("a"), json!("{broken")), "a", "{broken"),
            (call(json!(null), json!({"command": "ls"})), "call_0", "{\"command\":\"ls\"}"),
            (call(json!(""), json!(null)), "call_0", ""),
        ] {
            let reply = reply(&json!({"content": "x", "tool_calls": [written]}), "tool_calls");
            let message = assistant_message(&reply);
            let wanted = json!({"role": "assistant", "content": "x",
                "tool_calls": [call(json!(id), json!(arguments))]});
            assert_eq!(message, wanted);
        }
    }

    #[test]
    fn what_is_no_completion_is_told() {
        for (body, words) in [
            ("", "malformed"),
            ("<html>", "malformed"),
            ("{}", "malformed"),
            (r#"{"choices":[{"message":{"content":"cut"#, "malformed"),
            (r#"{"choices":[]}"#, "no choices"),
        ] {
            assert!(parse_reply(body.as_bytes()).unwrap_err().contains(words), "{body}");
        }
    }

    #[test]
    fn a_request_has_the_model_the_messages_and_the_tools() {
        let messages = [json!({"role": "user", "content": "p"})];
        let tools = json!([{"type": "function"}]);
        let body = |temperature| -> Value {
            serde_json::from_slice(&request_body("m", temperature, &messages, &tools)).unwrap()
        };
        let wanted = json!({"model": "m", "messages": messages, "tools": tools});
        assert_eq!(body(None), wanted);
        assert_eq!(body(Some(0.5))["temperature"], 0.5);
    }
}
