//! The loop: the model is asked, its tools are used, until one of them ends it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::access::ModelAccess;
use super::answer::{AnswerVerdict, TRIES_MAX, judge, wait_after};
use super::client::{ModelClient, PostFault, RESPONSE_BYTES_MAX, cancelled_within};
use super::conversation::{Conversation, EndReason, NextStep};
use super::settings::OpenaiSettings;
use super::tool_run::CellTools;
use super::tools::{ToolAsked, definitions};
use super::wire::{ModelReply, ToolRequest, request_body};
use crate::case::cell::CellExecutor;
use crate::case::harness::call::{Harness, HarnessCall};
use crate::case::harness::end::{HarnessEnd, HarnessError, millis_since};
use crate::case::harness::network::AgentReach;
use cofferdam_core::Outcome;

/// The most tools of one reply that are used.
const CALLS_MAX: usize = 64;
const CALLS_MAX_TOLD: &str = "error: a reply may ask for 64 tools; this one was not used";

/// Lets a model work by chat completions.
#[derive(Debug)]
pub struct OpenaiHarness {
    settings: OpenaiSettings,
    client: Arc<ModelClient>,
}

/// One call of the harness.
#[derive(Debug)]
struct ModelWork<'a> {
    harness: &'a OpenaiHarness,
    tools: CellTools<'a>,
    call: &'a HarnessCall<'a>,
    conversation: Conversation,
    /// What the model said.
    said: HarnessEnd,
}

/// What became of a request.
enum Asked {
    Reply(ModelReply),
    End(EndReason),
}

impl OpenaiHarness {
    /// A harness whose agent reaches `reach`. Its own requests obey the same network.
    pub fn new(settings: OpenaiSettings, reach: &AgentReach) -> Self {
        let access = ModelAccess::new(reach, &settings.terms, settings.entry());
        let client = ModelClient::new(access, settings.url.clone(), settings.key.clone());
        Self { settings, client: Arc::new(client) }
    }
}

impl Harness for OpenaiHarness {
    fn work(
        &self,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        let started = Instant::now();
        let mut work = ModelWork {
            harness: self,
            tools: CellTools { cell, call, env: &self.settings.env },
            call,
            conversation: Conversation::new(call.prompt, self.settings.turns_max),
            said: HarnessEnd::of(Outcome::Exited { code: 0 }, 0, String::new()),
        };
        let ended = work.converse();
        let word = ended.as_ref().map_or("failed", |reason| reason.word());
        work.trace(&json!({"event": "end", "reason": word}));
        let mut end = HarnessEnd::of(ended?.outcome(), millis_since(started), work.said.output);
        let tokens = work.conversation.tokens();
        end.agent.tokens = tokens;
        end.agent.cost_usd = tokens.and_then(|tokens| self.settings.prices.cost_usd(tokens));
        Ok(end)
    }
}

impl ModelWork<'_> {
    fn converse(&mut self) -> Result<EndReason, HarnessError> {
        let mut next = NextStep::Ask;
        loop {
            if let Some(reason) = self.stopped() {
                return Ok(reason);
            }
            next = match next {
                NextStep::End(reason) => return Ok(reason),
                NextStep::Use(calls) => {
                    self.use_tools(&calls)?;
                    NextStep::Ask
                }
                NextStep::Ask => match self.conversation.before_asking() {
                    NextStep::Ask => self.ask_once()?,
                    other => other,
                },
            };
        }
    }

    /// Why the agent may not go on, if it may not.
    fn stopped(&self) -> Option<EndReason> {
        if self.call.is_cancelled() {
            return Some(EndReason::Cancelled);
        }
        self.call.deadline.passed().then_some(EndReason::Late)
    }

    /// Asks the model and takes its reply.
    fn ask_once(&mut self) -> Result<NextStep, HarnessError> {
        let reply = match self.ask()? {
            Asked::Reply(reply) => reply,
            Asked::End(reason) => return Ok(NextStep::End(reason)),
        };
        if !reply.text.is_empty() {
            self.said.add_output(&reply.text);
            self.said.add_output("\n");
        }
        let next = self.conversation.take(&reply);
        let call = |call: &ToolRequest| json!({"id": call.id, "name": call.name, "arguments": call.arguments});
        let calls: Vec<Value> = reply.calls.iter().map(call).collect();
        self.trace(&json!({
            "event": "reply",
            "turn": self.conversation.replies(),
            "text": reply.text,
            "tool_calls": calls,
            "finish_reason": reply.finish.word(),
            "tokens": reply.tokens,
        }));
        Ok(next)
    }

    /// Sends one request, as often as it needs and may be sent.
    fn ask(&self) -> Result<Asked, HarnessError> {
        let settings = &self.harness.settings;
        let messages = self.conversation.messages();
        let body = request_body(self.call.model, settings.temperature, messages, &definitions());
        let mut tried = 1;
        loop {
            let turn = self.conversation.replies() + 1;
            self.trace(
                &json!({"event": "request", "turn": turn, "try": tried, "bytes": body.len()}),
            );
            let client = &self.harness.client;
            let posted = client.post(body.clone(), self.call.deadline, self.call.cancel);
            let (reason, after) = match posted {
                Ok(answer) => match judge(&answer) {
                    AnswerVerdict::Reply(reply) => return Ok(Asked::Reply(reply)),
                    AnswerVerdict::TooLong => return Ok(Asked::End(EndReason::TooLong)),
                    AnswerVerdict::Filtered => return Ok(Asked::End(EndReason::Filtered)),
                    AnswerVerdict::Failed(words) => return Err(HarnessError::failed(words)),
                    AnswerVerdict::Again { reason, after } => (reason, after),
                },
                Err(PostFault::Connection(reason)) => (reason, None),
                Err(fault) => return self.given_up(fault),
            };
            if let Some(end) = self.wait(tried, &reason, after)? {
                return Ok(Asked::End(end));
            }
            tried += 1;
        }
    }

    /// What a request means that is not sent again.
    fn given_up(&self, fault: PostFault) -> Result<Asked, HarnessError> {
        match fault {
            PostFault::Cancelled => Ok(Asked::End(EndReason::Cancelled)),
            // A model that has worked was slow; one that has not was not there.
            PostFault::Late if self.conversation.replies() > 0 => Ok(Asked::End(EndReason::Late)),
            PostFault::Late => {
                Err(HarnessError::timed_out("the endpoint did not answer before the time was over"))
            }
            PostFault::TooLarge => Err(HarnessError::failed(format!(
                "the endpoint's answer has more than {RESPONSE_BYTES_MAX} bytes"
            ))),
            PostFault::Denied(words) | PostFault::Failed(words) | PostFault::Connection(words) => {
                Err(HarnessError::failed(words))
            }
        }
    }

    /// Waits before the next try. Returns the end of the agent, if it comes first.
    fn wait(
        &self,
        tried: u32,
        reason: &str,
        after: Option<Duration>,
    ) -> Result<Option<EndReason>, HarnessError> {
        if tried >= TRIES_MAX {
            return Err(HarnessError::failed(format!("{reason} (after {TRIES_MAX} tries)")));
        }
        let wait = wait_after(tried, after);
        if wait >= self.call.deadline.remaining() {
            let words = format!("{reason} (no time is left for try {})", tried + 1);
            return Err(HarnessError::failed(words));
        }
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.trace(&json!({"event": "retry", "reason": reason, "wait_ms": wait_ms}));
        Ok(cancelled_within(self.call.cancel, wait).then_some(EndReason::Cancelled))
    }

    /// Uses tools, one after the other, and adds their answers.
    fn use_tools(&mut self, calls: &[ToolRequest]) -> Result<(), HarnessError> {
        for (index, call) in calls.iter().enumerate() {
            if self.stopped().is_some() {
                return Ok(());
            }
            let answer = match ToolAsked::parse(call) {
                _ if index >= CALLS_MAX => CALLS_MAX_TOLD.to_owned(),
                Ok(asked) => self.tools.answer(&asked)?,
                Err(told) => told,
            };
            self.trace(&json!({
                "event": "tool",
                "turn": self.conversation.replies(),
                "id": call.id,
                "name": call.name,
                "answer": answer,
            }));
            self.conversation.answer(&call.id, &answer);
        }
        Ok(())
    }

    /// Writes an event without the key.
    fn trace(&self, event: &Value) {
        let line = self.harness.client.redact(event.to_string().into_bytes());
        let event = serde_json::from_slice(&line);
        self.call.trace.write(&event.unwrap_or_else(|_| json!({"event": "redacted"})));
    }
}
