//! Conversations in messages: a history, made a prompt by a template. The model goes back to what it has read of a prompt, so no state is kept:
//! taking a turn back and switching a branch read again what differs.

use super::branch::{since, until_broken};
use super::branches::{Branches, Named};
use super::core::{Core, State};
use super::file::{Loaded, Record};
use super::mode::{Mode, Task, View};
use super::schedule::lend;
use super::{Answer, OnPart};
use crate::chat::format::{Kind, Messages, after_thought};
use crate::chat::reader::Read;
use crate::chat::{Format, Question};
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling};
use crate::session::{Event, Finish, Limits, Slot, Stream, Timings};
use crate::template::{Message, Role, Tool, process_segments};
use std::path::Path;
use web_time::Instant;

pub struct InMessages {
    slot: Slot,
    format: Format,
    branches: Branches<Branch>,
    /// What was asked last apart from the conversation.
    aside: Option<String>,
    /// What the slot has read.
    read: Vec<u32>,
}

/// A conversation.
#[derive(Clone, Default)]
struct Branch {
    /// Empty if there is no text of the system.
    system: String,
    tools: Vec<Tool>,
    history: Vec<Message>,
    /// How long the history was before each turn.
    turns: Vec<usize>,
    /// What was said last, by the user or a tool, and how long the history was before it.
    query: Option<(Message, usize)>,
}

impl InMessages {
    pub fn new(core: &mut Core, format: Format) -> Result<InMessages> {
        let slot = core.session.open()?;
        Ok(InMessages { slot, format, branches: Branches::new(Branch::default()), aside: None, read: Vec::new() })
    }

    /// Answers the last message of a history. Returns the messages that the answer adds, too.
    fn answer(&mut self, core: &mut Core, history: &[Message], on_part: &mut OnPart<'_>) -> Result<(Answer, Vec<Message>)> {
        let Kind::Messages(messages) = &self.format.kind else { unreachable!("a conversation in messages has a template") };
        let Messages { template, generation } = messages.as_ref().clone();
        let question = Question::with_vocab(&core.vocab, &self.format, history)?;
        let prompt = question.tokens.clone();
        if let Some(context) = core.session.model().context().filter(|&context| prompt.len() >= context) {
            let e = Error::input(format!(
                "the conversation takes {} tokens with this message, its context has room for {context}",
                prompt.len()
            ));
            return Err(e.hint("take turns back, begin again, or give a larger context (/undo, +reset, `context`)"));
        }
        let most = core.settings.chat_len_max;
        let limits = Limits { stop_ids: question.stop_ids.clone(), ..Limits::new(generation.max_new_tokens.map_or(most, |n| n.min(most))) };
        // Each answer has a random stream of its own, or another answer to the same question would be the same.
        let mut sampling = core.sampling();
        sampling.seed = sampling.seed.wrapping_add(core.draws);
        sampling.guard = sampling.guard.or(Some(template.family().guard()));
        sampling.check(core.session.model().facts().n_vocab)?;
        let mut stream = Stream::new(self.slot, sampler(sampling, &prompt), &limits);
        stream.processor = core.processor.as_ref().map(lend);
        stream.constraint = core.constraint(&question.position(&core.vocab))?;

        let started = Instant::now();
        let read = core.session.read_to_with(self.slot, &prompt, &mut *core.on_read);
        // Some of the prompt may be read even if that failed.
        core.session.tokens(self.slot)?.clone_into(&mut self.read);
        let n_prompt = prompt.len() - read?;
        let prefill_ms = since(started);

        let mut reader = question.reader(&core.vocab, generation.stop_strings);
        let mut hear = until_broken(on_part);
        let mut streams = [stream];
        let on_event = &mut |event: Event<'_>| reader.read(event.token, event.piece, &mut hear);
        let timings = core.session.continue_many(&mut streams, &limits, on_event);
        let [stream] = streams;
        self.read = match &timings {
            Ok(_) => [prompt, stream.tokens.clone()].concat(),
            Err(_) => core.session.tokens(self.slot)?.to_vec(),
        };
        let Timings { decode_ms, decode_tokens, .. } = timings?;
        core.draws = core.draws.wrapping_add(1 + stream.tokens.len() as u64);
        let Read { text, thought, has_stopped, segments, .. } = reader.end(&mut hear);
        let has_tools = history.iter().any(|message| !message.tools.is_empty());
        let (mut added, call) = process_segments(segments.iter().map(String::as_str), has_tools, template.family());
        for message in added.iter_mut().filter(|message| !has_tools || message.metadata.is_empty()) {
            message.content = after_thought(&message.content).into();
        }
        let finish = if has_stopped { Finish::Stop } else { stream.finish.unwrap_or(Finish::Interrupted) };
        // There is nothing to keep of an answer that was broken off before it began, nor of half a call.
        let is_kept = match &call {
            Some(_) => finish != Finish::Interrupted,
            None => !text.is_empty() || (finish != Finish::Interrupted && thought.is_empty()),
        };
        let answer = Answer {
            text,
            thought,
            call,
            finish,
            complete: stream.complete.map(|complete| complete && !has_stopped),
            is_kept,
            n_prompt,
            n_guarded: stream.sampler.n_guarded(),
            timings: Timings { prefill_ms, prefill_tokens: n_prompt, decode_ms, decode_tokens },
            tokens: stream.tokens,
        };
        Ok((answer, added))
    }

    /// Answers a message of the conversation.
    fn turn(&mut self, core: &mut Core, query: Message, on_part: &mut OnPart<'_>) -> Result<Answer> {
        let here = &mut self.branches.here;
        let before = here.history.len();
        here.query = Some((query.clone(), before));
        let mut asked = here.whole();
        asked.push(query.clone());
        let (answer, added) = self.answer(core, &asked, on_part)?;
        if answer.is_kept {
            let here = &mut self.branches.here;
            if query.role == Role::User {
                here.turns.push(before);
            }
            here.history.push(query);
            here.history.extend(added);
        }
        Ok(answer)
    }
}

/// A sampler whose repetition penalty knows the prompt, as in transformers.
fn sampler(sampling: Sampling, prompt: &[u32]) -> Sampler {
    let penalises = sampling.repeat_penalty != 1.0;
    let mut sampler = Sampler::new(sampling);
    if penalises {
        let mut seen = prompt.to_vec();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().for_each(|id| sampler.accept(id, 0.0));
    }
    // What looks back wants the tokens in their order.
    sampler.read(prompt);
    sampler
}

impl Mode for InMessages {
    fn say(&mut self, core: &mut Core, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.turn(core, Message::user(text), on_part)
    }

    fn observe(&mut self, core: &mut Core, result: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        let last = self.branches.here.history.last();
        if !last.is_some_and(|last| last.role == Role::Assistant && !last.metadata.is_empty()) {
            return Err(Error::input("expected a call of a tool before its result, found none"));
        }
        self.turn(core, Message::observation(result), on_part)
    }

    fn retry(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        let Some((query, before)) = self.branches.here.query.clone() else { return Ok(None) };
        let kept = self.branches.here.clone();
        let is_answered = self.branches.here.history.len() > before;
        self.branches.here.go_back(before);
        let answer = self.turn(core, query, on_part);
        // The first answer stays if there is no other, also if that was stopped before it began.
        if is_answered && !answer.as_ref().is_ok_and(|answer| answer.is_kept) {
            self.branches.here = kept;
        }
        answer.map(Some)
    }

    fn write(&mut self, core: &mut Core, task: Task<'_>, on_part: &mut OnPart<'_>) -> Result<Answer> {
        let (Task::Instruction(text) | Task::Question(text) | Task::QuestionAfterPrompt(text)) = task else { return Err(no_text()) };
        self.aside = Some(text.into());
        Ok(self.rewrite(core, on_part)?.expect("a question was asked"))
    }

    fn rewrite(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        let Some(text) = &self.aside else { return Ok(None) };
        let asked = [self.branches.here.beginning(), vec![Message::user(text.as_str())]].concat();
        self.answer(core, &asked, on_part).map(|(answer, _)| Some(answer))
    }

    fn write_more(&mut self, _core: &mut Core, _on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        Err(no_text())
    }

    fn reset(&mut self, _core: &mut Core) {
        let Branch { system, tools, .. } = std::mem::take(&mut self.branches.here);
        self.branches.here = Branch { system, tools, ..Branch::default() };
    }

    fn begin(&mut self, _core: &mut Core, format: Format, system: &str) -> Result<()> {
        if format.lines().is_some() {
            return Err(Error::input("expected a format of messages for a conversation in messages, found one of lines"));
        }
        self.format = format;
        let tools = std::mem::take(&mut self.branches.here.tools);
        self.branches.here = Branch { system: system.trim().into(), tools, ..Branch::default() };
        Ok(())
    }

    fn set_tools(&mut self, tools: Vec<Tool>) -> Result<()> {
        let system = std::mem::take(&mut self.branches.here.system);
        self.branches.here = Branch { system, tools, ..Branch::default() };
        Ok(())
    }

    fn undo(&mut self, _core: &mut Core) -> Result<()> {
        let here = &mut self.branches.here;
        let before = here.turns.last().copied().ok_or_else(|| Error::input("there is no turn to take back"))?;
        here.go_back(before);
        here.query = None;
        Ok(())
    }

    fn view(&self) -> View<'_> {
        let Branch { system, turns, .. } = &self.branches.here;
        View { branches: &self.branches, format: &self.format, system, n_turns: turns.len(), tokens: &self.read }
    }

    fn branches_mut(&mut self) -> &mut dyn Named {
        &mut self.branches
    }

    fn remove(&mut self, _core: &mut Core, name: &str) -> Result<()> {
        self.branches.remove(name).map(|_| ())
    }

    fn transcript(&self, _core: &Core) -> Vec<Message> {
        self.branches.here.history.clone()
    }

    fn states(&self) -> Vec<(&'static str, &State)> {
        Vec::new()
    }

    fn n_left(&self, core: &Core) -> Option<usize> {
        core.session.n_left(self.slot).expect("the slot is open")
    }

    fn save(&self, core: &mut Core, path: &Path) -> Result<()> {
        let Branch { system, tools, history, turns, .. } = &self.branches.here;
        let record = Record { history: history.clone(), tools: tools.clone(), ..Record::new(core, &self.format, system, turns.len()) };
        record.save(core, self.slot, &self.read, path)
    }

    fn load(&mut self, core: &mut Core, path: &Path) -> Result<()> {
        // There may be room for no other slot. What this one has read can be read again.
        core.session.close(self.slot)?;
        let loaded = Record::load(core, path).and_then(|loaded| match loaded.record.format(core) {
            Ok(format) => Ok((format, loaded)),
            Err(e) => core.session.close(loaded.slot).and(Err(e.at(path.display()))),
        });
        let (format, Loaded { slot, tokens, record, settings, draws }) = match loaded {
            Ok(loaded) => loaded,
            Err(e) => {
                (self.slot, self.read) = (core.session.open()?, Vec::new());
                return Err(e);
            }
        };
        (self.slot, self.format, self.read) = (slot, format, tokens);
        (core.settings, core.draws) = (settings, draws);
        self.branches.here = Branch::of(record);
        Ok(())
    }
}

impl Branch {
    /// From a file: a turn begins with every message of the user.
    fn of(record: Record) -> Branch {
        let Record { system, tools, history, .. } = record;
        let turns = history.iter().enumerate().filter(|(_, m)| m.role == Role::User).map(|(i, _)| i).collect();
        let last = history.iter().rposition(|m| matches!(m.role, Role::User | Role::Observation));
        let query = last.map(|i| (history[i].clone(), i));
        Branch { system, tools, history, turns, query }
    }

    /// What is before the first turn.
    fn beginning(&self) -> Vec<Message> {
        let is_empty = self.system.is_empty() && self.tools.is_empty();
        if is_empty { Vec::new() } else { vec![Message::system(self.system.clone()).with_tools(self.tools.clone())] }
    }

    /// What is before the next turn.
    fn whole(&self) -> Vec<Message> {
        [self.beginning(), self.history.clone()].concat()
    }

    /// Back to so many messages.
    fn go_back(&mut self, n: usize) {
        self.history.truncate(n);
        self.turns.retain(|&turn| turn < n);
    }
}

fn no_text() -> Error {
    let e = Error::input("this model answers messages and does not go on with a text of yours");
    e.hint("ask for it in a message, or use wingbeat generate")
}
