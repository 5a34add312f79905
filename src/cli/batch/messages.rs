//! Messages as a prompt, by the template of the model's family.

use crate::chat::{self, Files, Message, Role, Template};
use crate::error::{Error, Result};
use crate::session::{Model, Prompt, Session};
use std::sync::Arc;

/// How a model is talked to, and where its answers end.
#[derive(Clone)]
pub struct Dialogue {
    template: Option<Arc<dyn Template>>,
    /// Ids that end an answer; none: those of the model.
    pub stop_ids: Option<Vec<u32>>,
    /// The answer ends before any of these.
    pub stop_texts: Vec<String>,
}

impl Dialogue {
    /// Of a GLM its own template, from its folder or built in; else the form of the World models.
    pub fn of(model: &Model) -> Result<Dialogue> {
        let Some(builtin) = chat::builtin(model.facts().version, model.facts().n_vocab) else {
            return Ok(Dialogue { template: None, stop_ids: None, stop_texts: vec!["\n\nUser:".into()] });
        };
        let family = builtin.family();
        let files = model.folder().map(|folder| Files::read(folder, family)).transpose()?;
        let mut stop_ids = model.vocab().map_or_else(|| Ok(Vec::new()), |vocab| family.stop_ids(vocab))?;
        let mut template = builtin;
        if let Some(Files { template: own, generation }) = files {
            stop_ids.extend(generation.eos);
            template = own.map_or(template, |own| Arc::new(own));
        }
        Ok(Dialogue { template: Some(template), stop_ids: Some(stop_ids), stop_texts: Vec::new() })
    }

    /// The tokens of a conversation, up to where the model goes on.
    pub fn prompt_of(&self, session: &Session, messages: &[Message]) -> Result<Vec<u32>> {
        match (&self.template, session.model().vocab()) {
            (Some(template), Some(vocab)) => chat::encode(&template.render(messages)?, vocab),
            // Without a vocabulary this says so, of a template as well.
            _ => session.encode(&Prompt::Text(&world(messages)?)),
        }
    }
}

/// `User: …\n\nAssistant: …\n\nUser: …\n\nAssistant:`
fn world(messages: &[Message]) -> Result<String> {
    let mut text = String::new();
    for message in messages {
        let name = match message.role {
            Role::System => "System",
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::Observation => return Err(Error::input("expected no observation: this model's format has no tools").at("messages")),
        };
        text += &format!("{name}: {}\n\n", without_blank_lines(&message.content));
    }
    Ok(text + "Assistant:")
}

/// A blank line would end the turn.
fn without_blank_lines(content: &str) -> String {
    let content = content.replace("\r\n", "\n");
    content.trim().split('\n').filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_form_has_no_blank_line_within_a_turn() {
        let messages = [Message::system("Be brief."), Message::user(" a\r\n\r\nb\n\n\nc "), Message::assistant("d"), Message::user("e")];
        assert_eq!(world(&messages).unwrap(), "System: Be brief.\n\nUser: a\nb\nc\n\nAssistant: d\n\nUser: e\n\nAssistant:");
        assert!(world(&[Message::observation("x")]).is_err());
    }
}
