//! Answers messages, and lets the model call a tool. `cargo run --release --example chat_tools`

use serde_json::json;
use wingbeat::{Engine, EngineOptions, Message, ModelSource, Options, Request, Result, Tool, ToolChoice};

fn main() -> Result<()> {
    let model = Options::new().open(ModelSource::Embedded)?;
    let engine = Engine::start(&model, EngineOptions::default())?;
    let properties = json!({"verse": {"enum": ["Genesis 1:1", "John 1:1"]}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["verse"], "additionalProperties": false});
    let tool = Tool::function(json!({"name": "look_up", "description": "Returns the text of a verse.", "parameters": parameters}))?;
    let mut messages = vec![Message::user("How does the book begin?")];
    let ask = |messages: &[Message]| Request::chat(messages).format("g1").tools([tool.clone()]).max_tokens(120).seed(1);
    // The tiny model was not trained with tools, so the call is required. With a G1 model, leave the choice to the model.
    let asked = engine.run(ask(&messages).tool_choice(ToolChoice::Required))?;
    for call in &asked.calls {
        println!("{} {}", call.name, call.arguments);
        messages.push(Message::call(&call.name, &call.arguments));
        messages.push(Message::observation("In the beginning God created the heaven and the earth."));
    }
    println!("{}", engine.run(ask(&messages))?.text);
    Ok(())
}
