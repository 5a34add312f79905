//! Runs the command that a typed line contains.

use super::command::{self, Command, PromptKind};
use super::prompt_file::PromptFile;
use super::report::ChatReport;
use super::{Calls, Chat, NextAction, saved, status};
use crate::Failure;
use crate::grammar_options::NamedRules;
use crate::output::printable;
use crate::published;
use crate::report::TimingsReport;
use crate::tool_command::failure;
use std::path::Path;
use std::sync::atomic::Ordering;
use wingbeat::chat::AnswerPart;
use wingbeat::conversation::Overrides;
use wingbeat::error::{Kind, Result};
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::session::Finish;

/// After this many answers in a row that call tools, the chat waits for a message.
const MAX_ROUNDS: usize = 32;

/// The maximum number of characters that are shown of a tool call's result.
const SHOWN: usize = 200;

impl Chat {
    pub(super) fn obey(&mut self, line: &str) -> std::result::Result<NextAction, Failure> {
        if line.trim().is_empty() {
            return Ok(NextAction::Next);
        }
        if !self.calls.waiting.is_empty() && !line.starts_with(['/', '+']) {
            return self.result(line);
        }
        self.command(command::parse(line)?, line)
    }

    /// Generates and shows the answer to `what`, and keeps its tool calls. `typed` is the line that the user typed. Returns what the chat does
    /// next.
    fn draw(&mut self, what: PromptKind, overrides: Overrides, typed: &str) -> std::result::Result<NextAction, Failure> {
        let Chat { conversation, screen, reading, .. } = self;
        let is_reply = matches!(what, PromptKind::Say(_) | PromptKind::Retry | PromptKind::Results(_));
        screen.begin(is_reply.then(|| format!("{}{}", conversation.format().bot(), conversation.format().interface())));
        conversation.override_next(overrides);
        let on_part = &mut |part: AnswerPart<'_>| {
            reading.end();
            screen.part(part)
        };
        let answer = match what {
            PromptKind::Say(text) => conversation.say(&text, on_part).map(Some),
            PromptKind::Results(results) => {
                conversation.observe(&results.iter().map(String::as_str).collect::<Vec<_>>(), on_part).map(Some)
            }
            PromptKind::Retry => conversation.retry(on_part),
            PromptKind::Text(text) => conversation.continue_text(&text, on_part).map(Some),
            PromptKind::Instruct(text) => conversation.instruct(&text, on_part).map(Some),
            PromptKind::Ask(text) => conversation.ask(&text, on_part).map(Some),
            PromptKind::AskAfterPrompt(text) => conversation.ask_after_prompt(&text, on_part).map(Some),
            PromptKind::RetryText => conversation.retry_text(on_part),
            PromptKind::ContinueAnswer => conversation.continue_answer(on_part),
        };
        reading.end();
        let Some(answer) = answer? else {
            screen.aside("there is nothing to repeat or continue yet");
            return Ok(NextAction::Next);
        };
        let thought = answer.thought.trim();
        let report = ChatReport {
            prompt: typed,
            branch: conversation.branch(),
            seed: conversation.settings().sampling.seed,
            prompt_tokens: answer.n_prompt,
            tokens: &answer.tokens,
            text: &answer.text,
            thought: (!thought.is_empty()).then_some(thought),
            tool_calls: answer.calls.iter().map(Into::into).collect(),
            finish: answer.finish.name(),
            complete: answer.complete,
            timings: TimingsReport::new(conversation.model().load_ms(), &answer.timings),
        };
        screen.end(&answer, report)?;
        if !answer.is_kept {
            screen.aside("there is no answer: the message was taken back; + sends it again");
        }
        if answer.finish == Finish::Interrupted {
            return Ok(self.stopped());
        }
        if is_reply && answer.is_kept {
            for call in &answer.calls {
                self.screen.aside(format_args!("calls {} {}", printable(&call.name), printable(&call.arguments)));
            }
            self.calls.waiting = answer.calls.into();
        }
        Ok(NextAction::Next)
    }

    /// Takes the typed line as the result of the first tool call that has no result yet. After the result of the last call, the model answers.
    fn result(&mut self, line: &str) -> std::result::Result<NextAction, Failure> {
        let Calls { waiting, results, .. } = &mut self.calls;
        waiting.pop_front();
        results.push(line.replace("\\n", "\n").trim().to_string());
        if !waiting.is_empty() {
            return Ok(NextAction::Next);
        }
        let results = std::mem::take(results);
        self.draw(PromptKind::Results(results), Overrides::default(), line)
    }

    /// Runs the tool command for all calls of the last answer, then of the next answer, until an answer has no calls. `typed` is the user's
    /// line.
    fn run_tools(&mut self, typed: &str) -> std::result::Result<NextAction, Failure> {
        let Some(command) = self.calls.command.clone() else { return Ok(NextAction::Next) };
        let stop = self.conversation.stop_flag();
        for _ in 0..MAX_ROUNDS {
            let mut results = Vec::new();
            while let Some(call) = self.calls.waiting.pop_front() {
                let result = match self.conversation.format().parameters(&call) {
                    Ok(arguments) => command.run(&call, &arguments, &stop),
                    Err(e) => failure(&e.to_string()),
                };
                self.screen.aside(format_args!("result {}", printable(&short(&result, SHOWN))));
                results.push(result);
            }
            if results.is_empty() || stop.load(Ordering::Relaxed) {
                return Ok(if results.is_empty() { NextAction::Next } else { self.stopped() });
            }
            if self.draw(PromptKind::Results(results), Overrides::default(), typed)? == NextAction::Leave {
                return Ok(NextAction::Leave);
            }
        }
        self.calls.waiting.clear();
        self.screen.aside(format_args!("{MAX_ROUNDS} answers in a row called tools: the chat waits for a message"));
        Ok(NextAction::Next)
    }

    /// Restarts the chat with the prompt file `path`. A wrong file is reported, and the chat continues unchanged.
    fn prompt(&mut self, path: &Path) -> std::result::Result<(), Failure> {
        let Chat { conversation, screen, reading, .. } = self;
        let read = PromptFile::find(path).and_then(|file| {
            let (format, settings) = file.over(conversation.format(), conversation.settings()).map_err(|e| e.at(path.display()))?;
            settings.sampling.check(conversation.model().facts().n_vocab).map_err(|e| e.at(path.display()))?;
            Ok((format, settings))
        });
        match read {
            Ok((format, settings)) => {
                let begun = conversation.set_format(format, settings);
                reading.end();
                begun?;
                screen.tell("Prompt set up.");
            }
            Err(e) => self.wrong(format!("Path error. {e}"))?,
        }
        Ok(())
    }

    /// Reports a wrong line with the message `why`, worded as in ChatRWKV.
    fn wrong(&mut self, why: String) -> std::result::Result<(), Failure> {
        self.screen.wrong(why)?;
        self.note(Kind::Input);
        Ok(())
    }

    /// Constrains all further answers to a grammar or schema. `None` removes the constraint.
    pub(super) fn hold_to(&mut self, asked: Option<NamedRules>) -> Result<()> {
        match &asked {
            Some(asked) => self.conversation.set_grammar(Some(&self.close.apply(asked.grammar()?))).map_err(|e| e.at(&asked.name))?,
            None => self.conversation.set_grammar(None)?,
        }
        self.grammar = asked.map(|asked| asked.name);
        Ok(())
    }

    fn held_to(&self) -> String {
        self.grammar.as_ref().map_or("answers follow no grammar".into(), |name| format!("answers follow {name}"))
    }

    fn command(&mut self, command: Command, typed: &str) -> std::result::Result<NextAction, Failure> {
        if command.ends_calls() {
            (self.calls.waiting, self.calls.results) = Default::default();
        }
        match command {
            Command::Help => self.screen.tell(&command::help()),
            Command::Save(path) => {
                self.conversation.save(&path)?;
                self.target.iter_mut().for_each(|target| target.wrote(&path));
                self.screen.aside(format_args!("saved to {}", path.display()));
            }
            Command::Load(path) => {
                let loaded = self.conversation.load(&path);
                self.reading.end();
                loaded.map_err(|e| if published::exists(&path) { e } else { saved::missing(&path) })?;
                self.screen.aside(status::branch_line(&self.conversation));
                self.show_last_turns();
            }
            Command::Fork(name) => {
                self.conversation.fork(&name)?;
                self.screen.aside(status::branch_line(&self.conversation));
            }
            Command::Switch(Some(name)) => {
                self.conversation.switch(&name)?;
                self.screen.aside(status::branch_line(&self.conversation));
            }
            Command::Switch(None) => self.screen.tell(&status::branches(&self.conversation)),
            Command::Forget(name) => {
                self.conversation.remove(&name)?;
                self.screen.tell(&status::branches(&self.conversation));
            }
            Command::Undo => {
                self.conversation.undo()?;
                self.screen.aside(status::branch_line(&self.conversation));
            }
            Command::Stats => self.screen.tell(&status::stats(&self.conversation.stats())),
            Command::Clear => {
                self.conversation.reset();
                self.screen.aside("the chat was restarted");
            }
            Command::Reset => {
                self.conversation.reset();
                self.screen.tell("Chat reset.");
            }
            Command::Prompt(path) => self.prompt(&path)?,
            Command::Wrong(why) => self.wrong(why)?,
            Command::Set(Some((name, None))) => self.screen.tell(&format!("{name} is {}", self.conversation.settings().get(&name)?)),
            Command::Set(Some((name, Some(value)))) => {
                self.conversation.set(&name, &value)?;
                self.screen.aside(status::changed(&name, &value, self.conversation.settings()));
            }
            Command::Set(None) => self.screen.tell(&status::settings(self.conversation.settings())),
            Command::System(text) => {
                let begun = self.conversation.set_system(&text.replace("\\n", "\n"));
                self.reading.end();
                begun?;
                self.screen.aside("the chat was restarted");
            }
            Command::Grammar(Some(name)) => {
                let asked = if name == "none" { None } else { Some(NamedRules::named(&name)?) };
                self.hold_to(asked)?;
                self.screen.aside(self.held_to());
            }
            Command::History => self.screen.tell(String::from_utf8_lossy(&self.conversation.text()).trim()),
            Command::Grammar(None) => self.screen.tell(&self.held_to()),
            Command::Thinking(Some(thinking)) => {
                self.conversation.set_thinking(thinking)?;
                self.screen.aside(format_args!("thinking is {}", thinking.name()));
            }
            Command::Thinking(None) => match self.conversation.format().thinking() {
                Some(thinking) => self.screen.tell(&format!("thinking is {}", thinking.name())),
                None => self.screen.tell("the format of this chat has no choice of thoughts"),
            },
            Command::Draw(what, overrides) => {
                return match self.draw(what, overrides, typed)? {
                    NextAction::Next => self.run_tools(typed),
                    then => Ok(then),
                };
            }
            Command::Exit => return Ok(NextAction::Leave),
        }
        Ok(NextAction::Next)
    }
}
