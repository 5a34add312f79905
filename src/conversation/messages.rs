//! Conversations in messages: for each answer, a template renders the whole history as one prompt. The conversation has a namespace in the engine's
//! prefix cache. So only the part of a prompt that differs from earlier prompts is prefilled, even after an undo or a switch of branches.

use super::Answer;
use super::branch::until_broken;
use super::branches::{Branches, Named};
use super::core::Core;
use super::file::{Loaded, SavedConversation};
use super::mode::{Mode, OneOffPrompt, View};
use super::schedule::lend;
use crate::calls::Declared;
use crate::chat::format::{FormatKind, Messages, after_thought};
use crate::chat::reader::{ReadAnswer, is_declared};
use crate::chat::{Format, OnPart, Question, Thinking};
use crate::engine::{Space, TurnResult};
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling};
use crate::session::{Finish, Keeps, Limits, Text, TextSpec, Timings};
use crate::template::{Message, Role, Tool, process_segments};
use std::path::Path;
use std::sync::Arc;

pub struct InMessages {
    /// The conversation's entries in the engine's prefix cache.
    space: Arc<Space>,
    /// The tokens of the conversation's newest entry in the prefix cache. [`save`](Mode::save) writes the state after these tokens. For RWKV, the
    /// tokens end where the next prompt can differ. The next prompt has the answer in place of the beginning of a thought.
    stays: Vec<u32>,
    format: Format,
    branches: Branches<Branch>,
    /// The last question that was asked outside the conversation.
    aside: Option<String>,
}

/// A branch of the conversation.
#[derive(Clone, Default)]
struct Branch {
    /// The system message, or an empty text.
    system: String,
    tools: Vec<Tool>,
    history: Vec<Message>,
    /// For each turn, the number of messages in `history` before the turn.
    turns: Vec<usize>,
    /// The messages to which the last answer responds: the user's last message, or the last results of tools. The number is how many messages in
    /// `history` come before these messages. `None` before the first message and after an undo.
    query: Option<(Vec<Message>, usize)>,
    /// The tokens of the conversation, from the first prompt to the end of the last answer.
    tokens: Vec<u32>,
}

/// A new answer, the messages that it adds to the history, and the tokens of prompt and answer.
struct Answered {
    answer: Answer,
    added: Vec<Message>,
    tokens: Vec<u32>,
}

impl InMessages {
    pub fn new(core: &mut Core, format: Format) -> Result<InMessages> {
        check_vocab(core, &format)?;
        let (space, branches) = (core.engine.space(), Branches::new(Branch::default()));
        Ok(InMessages { space, stays: Vec::new(), format, branches, aside: None })
    }

    /// Samples an answer to the last message of `history`. Does not change the current branch.
    fn answer(&mut self, core: &mut Core, history: &[Message], on_part: &mut OnPart<'_>) -> Result<Answered> {
        let FormatKind::Messages(messages) = &self.format.kind else { unreachable!("a conversation in messages has a template") };
        let Messages { template, generation } = messages.as_ref().clone();
        let (is_rwkv, is_plain) = (messages.is_rwkv(), messages.has_plain_answers());
        let question = Question::with_vocab(&core.vocab, &self.format, history)?;
        let prompt = question.tokens.clone();
        if let Some(context) = core.model().context().filter(|&context| prompt.len() >= context) {
            let e = Error::input(format!(
                "the conversation with this message has {} tokens, but the context holds {context} tokens",
                prompt.len()
            ));
            return Err(e.hint("take back some turns, restart the conversation, or set a larger `context`"));
        }
        let most = core.settings.chat_len_max;
        let mut limits =
            Limits { stop_ids: question.stop_ids.clone(), ..Limits::new(generation.max_new_tokens.map_or(most, |n| n.min(most))) };
        // Each answer has its own seed, so that another answer to the same question has another text.
        let mut sampling = core.sampling();
        sampling.seed = sampling.seed.wrapping_add(core.draws);
        sampling.guard = sampling.guard.or(template.family().guard());
        sampling.check(core.model().facts().n_vocab)?;
        let constraint = core.constraint(&question.place)?;
        // Under a constraint the session gets no stop texts, because the constraint determines the end. With special tokens in the template, `reader`
        // below searches for the stop texts.
        if question.is_text() && constraint.is_none() {
            limits.stop_texts.clone_from(&question.stop_texts);
        }

        let n_stays = if is_rwkv { question.n_stays(&core.vocab)? } else { 0 };
        let job = TextSpec {
            processor: core.processor.as_ref().map(lend),
            constraint,
            keeps: Keeps { at: vec![n_stays], ..Keeps::default() },
            ..TextSpec::new(prompt.clone(), sampler(sampling, &prompt), limits)
        };
        let mut reader = question.reader(&core.vocab, question.stop_texts.clone());
        let mut hear = until_broken(on_part);
        let passed = core.pass(job, None, Some(&self.space), &mut |token, piece| reader.push(token, piece, &mut hear))?;
        let TurnResult { output, n_prefilled, prefill_ms, decode_ms, .. } = passed;
        let finish = output.reason();
        let Text { tokens: made, complete, drafted, accepted, spec: TextSpec { sampler, .. }, .. } = output;
        let tokens = [&prompt[..], &made].concat();
        self.stays = if is_rwkv { prompt[..n_stays].to_vec() } else { tokens.clone() };
        core.draws = core.draws.wrapping_add(1 + made.len() as u64);
        let ReadAnswer { text, thought, has_stopped, segments, calls, .. } = reader.end(&mut hear);
        let declared = Declared::in_messages(history);
        let (added, calls) = match is_plain {
            true => {
                let said = Some(Message::assistant(text.as_str())).filter(|said| !said.content.is_empty() || calls.is_empty());
                let called = calls.iter().map(|call| Message::call(&call.name, &call.arguments));
                (said.into_iter().chain(called).collect(), calls)
            }
            false => {
                let is_tool = |name: &str| is_declared(name, &declared);
                let (mut added, call) = process_segments(segments.iter().map(String::as_str), &is_tool);
                for message in added.iter_mut().filter(|message| !is_tool(message.metadata.trim())) {
                    message.content = after_thought(&message.content).into();
                }
                (added, call.into_iter().collect())
            }
        };
        let finish = if has_stopped { Finish::Stop } else { finish };
        // A GLM's interrupted tool call is dropped; calls in plain answers are complete. An answer with neither text nor calls is kept only if it
        // has no thought and was not interrupted.
        let is_kept = match calls.is_empty() {
            false => is_plain || finish != Finish::Interrupted,
            true => !text.is_empty() || (finish != Finish::Interrupted && thought.is_empty()),
        };
        let answer = Answer {
            text,
            thought,
            calls,
            finish,
            complete: complete.map(|complete| complete && !has_stopped),
            is_kept,
            n_prompt: n_prefilled,
            n_guarded: sampler.n_guarded(),
            timings: Timings {
                queue_ms: 0.0,
                prefill_ms,
                prefill_tokens: n_prefilled,
                decode_ms,
                decode_tokens: made.len(),
                drafted_tokens: drafted,
                accepted_tokens: accepted,
            },
            tokens: made,
        };
        Ok(Answered { answer, added, tokens })
    }

    /// Samples the answer to `query`: a message of the user, or results of tools. If the answer is kept, adds `query` and the answer to the current
    /// branch.
    fn turn(&mut self, core: &mut Core, query: Vec<Message>, on_part: &mut OnPart<'_>) -> Result<Answer> {
        let here = &mut self.branches.here;
        let before = here.history.len();
        here.query = Some((query.clone(), before));
        let mut asked = here.whole();
        asked.extend(query.iter().cloned());
        let Answered { answer, added, tokens } = self.answer(core, &asked, on_part)?;
        if answer.is_kept {
            let here = &mut self.branches.here;
            if query.iter().any(|message| message.role == Role::User) {
                here.turns.push(before);
            }
            here.history.extend(query);
            here.history.extend(added);
            here.tokens = tokens;
        }
        Ok(answer)
    }
}

/// Returns a sampler whose repetition penalty counts the prompt's tokens, as in transformers. Penalties on repeated sequences also need the order of
/// these tokens, so the engine later passes the whole prompt to the sampler.
fn sampler(sampling: Sampling, prompt: &[u32]) -> Sampler {
    let penalises = sampling.repeat_penalty != 1.0;
    let mut sampler = Sampler::new(sampling);
    if penalises {
        let mut seen = prompt.to_vec();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().for_each(|id| sampler.accept(id, 0.0));
    }
    sampler
}

impl Mode for InMessages {
    fn say(&mut self, core: &mut Core, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        let query = self.format.hinted(vec![Message::user(text)]);
        self.turn(core, query, on_part)
    }

    fn observe(&mut self, core: &mut Core, results: &[&str], on_part: &mut OnPart<'_>) -> Result<Answer> {
        let (here, declared) = (&self.branches.here, Declared::of(&self.branches.here.tools));
        let is_call = |last: &&Message| last.role == Role::Assistant && is_declared(last.metadata.trim(), &declared);
        let n_calls = here.history.iter().rev().take_while(is_call).count();
        if n_calls == 0 {
            return Err(Error::input("a tool result must follow a tool call, but the last answer calls no tool"));
        }
        if results.len() != n_calls {
            return Err(Error::input(format!(
                "expected a result for each of the {n_calls} calls of the last answer, found {}",
                results.len()
            )));
        }
        self.turn(core, results.iter().map(|result| Message::observation(*result)).collect(), on_part)
    }

    fn retry(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        let Some((query, before)) = self.branches.here.query.clone() else { return Ok(None) };
        let kept = self.branches.here.clone();
        let is_answered = self.branches.here.history.len() > before;
        self.branches.here.go_back(core, before);
        let answer = self.turn(core, query, on_part);
        // The earlier answer stays if the new one fails or is not kept.
        if is_answered && !answer.as_ref().is_ok_and(|answer| answer.is_kept) {
            self.branches.here = kept;
        }
        answer.map(Some)
    }

    fn write(&mut self, core: &mut Core, prompt: OneOffPrompt<'_>, on_part: &mut OnPart<'_>) -> Result<Answer> {
        let (OneOffPrompt::Instruction(text) | OneOffPrompt::Question(text) | OneOffPrompt::QuestionAfterPrompt(text)) = prompt else {
            return Err(no_text());
        };
        self.aside = Some(text.into());
        Ok(self.rewrite(core, on_part)?.expect("a question was asked"))
    }

    fn rewrite(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        let Some(text) = &self.aside else { return Ok(None) };
        let asked = [self.branches.here.beginning(), vec![Message::user(text.as_str())]].concat();
        self.answer(core, &asked, on_part).map(|answered| Some(answered.answer))
    }

    fn write_more(&mut self, _core: &mut Core, _on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        Err(no_text())
    }

    fn reset(&mut self) {
        let Branch { system, tools, .. } = std::mem::take(&mut self.branches.here);
        self.branches.here = Branch { system, tools, ..Branch::default() };
    }

    fn set_thinking(&mut self, thinking: Thinking) -> Result<()> {
        self.format = self.format.clone().with_thinking(thinking)?;
        Ok(())
    }

    fn begin(&mut self, core: &mut Core, format: Format, system: &str) -> Result<()> {
        check_vocab(core, &format)?;
        self.format = format;
        let tools = std::mem::take(&mut self.branches.here.tools);
        self.branches.here = Branch { system: system.trim().into(), tools, ..Branch::default() };
        Ok(())
    }

    fn set_tools(&mut self, tools: Vec<Tool>) -> Result<()> {
        if !tools.is_empty() {
            self.format = self.format.clone().for_tools();
        }
        let system = std::mem::take(&mut self.branches.here.system);
        self.branches.here = Branch { system, tools, ..Branch::default() };
        Ok(())
    }

    fn undo(&mut self, core: &mut Core) -> Result<()> {
        let here = &mut self.branches.here;
        let before = here.turns.last().copied().ok_or_else(|| Error::input("the conversation has no turn to take back"))?;
        here.go_back(core, before);
        here.query = None;
        Ok(())
    }

    fn view(&self) -> View<'_> {
        let Branch { system, turns, tokens, .. } = &self.branches.here;
        View { branches: &self.branches, format: &self.format, system, n_turns: turns.len(), tokens }
    }

    fn branches_mut(&mut self) -> &mut dyn Named {
        &mut self.branches
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.branches.remove(name).map(|_| ())
    }

    fn transcript(&self, _core: &Core) -> Vec<Message> {
        self.branches.here.history.clone()
    }

    fn n_left(&self, core: &Core) -> Option<usize> {
        let context = core.model().context()?;
        Some(context.saturating_sub(self.branches.here.tokens.len()))
    }

    fn save(&self, core: &Core, path: &Path) -> Result<()> {
        let Branch { system, tools, history, turns, .. } = &self.branches.here;
        let record = SavedConversation {
            history: history.clone(),
            tools: tools.clone(),
            ..SavedConversation::new(core, &self.format, system, turns.len())
        };
        let (snapshot, n_tokens) = core.engine.copy_in(&self.space, self.stays.clone())?;
        record.save(core, &snapshot, &self.stays[..n_tokens], path)
    }

    fn load(&mut self, core: &mut Core, format: Format, loaded: Loaded) -> Result<()> {
        check_vocab(core, &format)?;
        let Loaded { snapshot, tokens, record, .. } = loaded;
        core.engine.keep_in(&self.space, tokens.clone(), snapshot)?;
        self.format = format;
        self.stays.clone_from(&tokens);
        self.branches.here = Branch::of(record, tokens);
        Ok(())
    }
}

impl Branch {
    /// Makes a branch from the record of a file. `tokens` are the tokens that the loaded state has read. Each message of the user begins a turn.
    fn of(record: SavedConversation, tokens: Vec<u32>) -> Branch {
        let SavedConversation { system, tools, history, .. } = record;
        let turns = history.iter().enumerate().filter(|(_, m)| m.role == Role::User).map(|(i, _)| i).collect();
        let is_query = |m: &Message| matches!(m.role, Role::User | Role::Observation);
        let query = history.iter().rposition(is_query).map(|last| {
            let n_results = history[..=last].iter().rev().take_while(|m| m.role == Role::Observation).count();
            let first = last + 1 - n_results.max(1);
            (history[first..=last].to_vec(), first)
        });
        Branch { system, tools, history, turns, query, tokens }
    }

    /// Returns the messages before the first turn: the system message with the tools, or no message.
    fn beginning(&self) -> Vec<Message> {
        let is_empty = self.system.is_empty() && self.tools.is_empty();
        if is_empty { Vec::new() } else { vec![Message::system(self.system.clone()).with_tools(self.tools.clone())] }
    }

    /// Returns all messages so far, the system message included.
    fn whole(&self) -> Vec<Message> {
        [self.beginning(), self.history.clone()].concat()
    }

    /// Drops all messages after the first `n`, and the tokens of the dropped turns. A turn's tokens begin at the token `<|user|>`.
    fn go_back(&mut self, core: &Core, n: usize) {
        self.history.truncate(n);
        let n_turns = self.turns.partition_point(|&turn| turn < n);
        let user = core.vocab.special(Role::User.special());
        if n_turns < self.turns.len() && user.is_none() {
            // Without special tokens, the tokens of a turn are unknown.
            self.tokens.clear();
        }
        for _ in n_turns..self.turns.len() {
            let end = user.and_then(|user| self.tokens.iter().rposition(|id| *id == user));
            self.tokens.truncate(end.unwrap_or(0));
        }
        self.turns.truncate(n_turns);
    }
}

/// Checks that the vocabulary has all special tokens of a template.
fn check_vocab(core: &Core, format: &Format) -> Result<()> {
    match &format.kind {
        FormatKind::Messages(messages) => messages.template.family().check(&core.vocab),
        FormatKind::Lines(_) => {
            Err(Error::input("this conversation uses a chat template, and cannot change to a chat format without a template"))
        }
    }
}

fn no_text() -> Error {
    Error::input("this model has a chat template, so a conversation with it has no free text to continue")
        .hint("ask for the text in a message")
}
