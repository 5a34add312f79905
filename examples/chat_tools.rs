//! Answers messages, and lets the model call a tool. `cargo run --release --example chat_tools`

use serde_json::json;
use wingbeat::{Engine, EngineOptions, Message, ModelSource, Options, Request, Result, Tool};

fn main() -> Result<()> {
    let model = Options::new().open(ModelSource::Embedded)?;
    let engine = Engine::start(&model, EngineOptions::default())?;
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = Tool::function(json!({"name": "weather", "description": "The weather of a city", "parameters": parameters}))?;
    let mut messages = vec![Message::user("What is the weather in Paris?")];
    let ask = |messages: &[Message]| Request::chat(messages).tools([tool.clone()]).max_tokens(120).seed(1);
    let asked = engine.run(ask(&messages))?;
    for call in &asked.calls {
        println!("{} {}", call.name, call.arguments);
        messages.push(Message::call(&call.name, &call.arguments));
        messages.push(Message::observation(r#"{"sky": "sunny", "celsius": 21}"#));
    }
    println!("{}", engine.run(ask(&messages))?.text);
    Ok(())
}
