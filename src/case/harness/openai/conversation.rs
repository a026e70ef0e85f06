//! A conversation with a model: what is said next, and when it ends (pure).

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::wire::{FinishReason, ModelReply, ToolRequest, assistant_message};
use crate::case::harness::call::HarnessPrompt;
use crate::case::harness::end::{AgentTokens, LATE};
use cofferdam_core::Outcome;

/// The most bytes of all messages.
const MESSAGES_BYTES_MAX: usize = 16 << 20;
/// What is said to a model that was cut off.
const GO_ON: &str = "Your message was cut at its length limit. Go on.";

/// The messages so far, and those that come later.
#[derive(Debug)]
pub(super) struct Conversation {
    messages: Vec<Value>,
    messages_bytes: usize,
    turns: VecDeque<String>,
    replies: u32,
    replies_max: u32,
    tokens: Option<AgentTokens>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The model is asked.
    Ask,
    /// Tools are used, and their answers added.
    Use(Vec<ToolRequest>),
    /// Nothing.
    End(EndReason),
}

/// Why an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The model has nothing more to say.
    Finished,
    /// It has answered as often as it may.
    TurnsMax,
    /// The conversation is too long.
    TooLong,
    /// The endpoint's filter stopped it.
    Filtered,
    /// Its time is over.
    Late,
    /// It was cancelled.
    Cancelled,
}

impl EndReason {
    /// Its word in the trace.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::TurnsMax => "max_turns",
            Self::TooLong => "too_long",
            Self::Filtered => "content_filter",
            Self::Late => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    /// How the agent ended, as if it were a program.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Finished => Outcome::Exited { code: 0 },
            Self::TurnsMax | Self::TooLong | Self::Filtered => Outcome::Exited { code: 1 },
            Self::Late => LATE,
            Self::Cancelled => Outcome::Cancelled,
        }
    }
}

impl Conversation {
    /// A conversation in which the model answers at most `replies_max` times.
    pub(super) fn new(prompt: &HarnessPrompt, replies_max: u32) -> Self {
        let mut conversation = Self {
            messages: Vec::new(),
            messages_bytes: 0,
            turns: prompt.turns.iter().cloned().collect(),
            replies: 0,
            replies_max,
            tokens: None,
        };
        if let Some(system) = &prompt.system_prompt {
            conversation.add(json!({"role": "system", "content": system}));
        }
        conversation.say(&prompt.task_text());
        conversation
    }

    /// All messages.
    pub(super) fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// How often the model has answered.
    pub(super) fn replies(&self) -> u32 {
        self.replies
    }

    /// What the model has read and written, if the endpoint says so.
    pub(super) fn tokens(&self) -> Option<AgentTokens> {
        self.tokens
    }

    /// What comes before the model is asked.
    pub(super) fn before_asking(&self) -> NextStep {
        if self.messages_bytes > MESSAGES_BYTES_MAX {
            return NextStep::End(EndReason::TooLong);
        }
        match self.replies < self.replies_max {
            true => NextStep::Ask,
            false => NextStep::End(EndReason::TurnsMax),
        }
    }

    /// Adds a reply of the model.
    pub(super) fn take(&mut self, reply: &ModelReply) -> NextStep {
        self.replies += 1;
        if let Some(used) = reply.tokens {
            let tokens = self.tokens.get_or_insert_default();
            tokens.read = tokens.read.saturating_add(used.read);
            tokens.written = tokens.written.saturating_add(used.written);
        }
        self.add(assistant_message(reply));
        if reply.finish == FinishReason::ContentFilter {
            return NextStep::End(EndReason::Filtered);
        }
        if !reply.calls.is_empty() {
            return NextStep::Use(reply.calls.clone());
        }
        if reply.finish == FinishReason::Length {
            self.say(GO_ON);
            return NextStep::Ask;
        }
        match self.turns.pop_front() {
            Some(turn) => {
                self.say(&turn);
                NextStep::Ask
            }
            None => NextStep::End(EndReason::Finished),
        }
    }

    /// Adds the answer of a tool.
    pub(super) fn answer(&mut self, id: &str, text: &str) {
        self.add(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }

    fn say(&mut self, text: &str) {
        self.add(json!({"role": "user", "content": text}));
    }

    fn add(&mut self, message: Value) {
        self.messages_bytes = self.messages_bytes.saturating_add(message.to_string().len());
        self.messages.push(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(turns: &[&str]) -> HarnessPrompt {
        HarnessPrompt {
            system_prompt: Some("s".to_owned()),
            prompt: "p".to_owned(),
            turns: turns.iter().map(ToString::to_string).collect(),
            ..HarnessPrompt::default()
        }
    }

    fn reply(text: &str, finish: FinishReason, calls: usize) -> ModelReply {
        let call = |index| ToolRequest {
            id: format!("c{index}"),
            name: "bash".to_owned(),
            arguments: String::new(),
        };
        let tokens = Some(AgentTokens { read: 10, written: 1 });
        ModelReply { text: text.to_owned(), calls: (0..calls).map(call).collect(), finish, tokens }
    }

    #[test]
    fn a_reply_decides_what_comes_next() {
        let stop = FinishReason::Stop;
        for (reply, turns, wanted, last) in [
            (reply("done", stop, 0), &[][..], "End(Finished)", "done"),
            (reply("", stop, 0), &[], "End(Finished)", ""),
            (reply("done", stop, 0), &["more"], "Ask", "more"),
            (reply("half", FinishReason::Length, 0), &[], "Ask", GO_ON),
            (reply("half", FinishReason::Length, 0), &["more"], "Ask", GO_ON),
            (reply("x", stop, 2), &["more"], "Use", "x"),
            (reply("x", FinishReason::Length, 1), &[], "Use", "x"),
            (reply("x", FinishReason::ContentFilter, 1), &["more"], "End(Filtered)", "x"),
        ] {
            let mut conversation = Conversation::new(&prompt(turns), 5);
            let next = format!("{:?}", conversation.take(&reply));
            assert!(next.starts_with(wanted), "{reply:?}: {next}");
            assert_eq!(conversation.messages().last().unwrap()["content"], last, "{reply:?}");
        }
    }

    #[test]
    fn the_model_answers_as_often_as_it_may_and_its_tokens_add_up() {
        let mut conversation = Conversation::new(&prompt(&[]), 2);
        for replies in 0..2 {
            assert_eq!(conversation.replies(), replies);
            assert_eq!(conversation.before_asking(), NextStep::Ask);
            let next = conversation.take(&reply("", FinishReason::Stop, 1));
            assert!(matches!(next, NextStep::Use(_)));
            conversation.answer("c0", "out");
        }
        assert_eq!(conversation.before_asking(), NextStep::End(EndReason::TurnsMax));
        assert_eq!(conversation.tokens(), Some(AgentTokens { read: 20, written: 2 }));
        let roles: Vec<_> =
            conversation.messages().iter().map(|message| message["role"].clone()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool"]);
    }

    #[test]
    fn a_conversation_that_is_too_long_ends() {
        let mut conversation = Conversation::new(&prompt(&[]), 2);
        conversation.answer("a", &"x".repeat(MESSAGES_BYTES_MAX));
        assert_eq!(conversation.before_asking(), NextStep::End(EndReason::TooLong));
    }

    #[test]
    fn an_end_has_the_code_of_a_program() {
        for (reason, word, code) in [
            (EndReason::Finished, "exited", Some(0)),
            (EndReason::TurnsMax, "exited", Some(1)),
            (EndReason::TooLong, "exited", Some(1)),
            (EndReason::Filtered, "exited", Some(1)),
            (EndReason::Late, "timed_out", None),
            (EndReason::Cancelled, "cancelled", None),
        ] {
            let outcome = reason.outcome();
            assert_eq!((outcome.word(), outcome.shell_code()), (word, code), "{reason:?}");
        }
    }
}
