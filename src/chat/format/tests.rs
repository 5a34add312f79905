//! Tests of the choice of a format, and of the texts that formats write.

use super::known::{Known, Seen};
use super::*;
use crate::chat::Message;
use crate::template::{Glm47, Part};

fn seen(name: &str, n_vocab: usize) -> &'static str {
    Known::seen(&Seen { n_vocab, name, is_small_world: false }).name
}

fn lines(name: &str) -> Lines {
    KNOWN.iter().find(|known| known.name == name).unwrap().lines()
}

#[test]
fn name_and_vocabulary_determine_the_format() {
    let cases = [
        ("RWKV-x060-World-1B6-v2.1", 65536, "world"),
        ("rwkv7-g1a-0.4b-20250905-ctx4096", 65536, "g1-think"),
        ("rwkv7-g0-7.2b", 65536, "g1-think"),
        ("RWKV7-G1-1.5B", 65536, "g1-think"),
        ("rwkv7-g1c2-x", 65536, "g1-think"),
        ("rwkv7-g12", 65536, "world"),
        ("RWKV-4-Raven-7B-v12-Eng98%", 50277, "raven"),
        ("RWKV-4-Pile-14B-20230313-ctx8192", 50277, "raven"),
        ("rwkv7-pile", 50304, "raven"),
        ("RWKV-4-Pile-7B-Instruct-test4", 50277, "instruct"),
        ("v7", 2048, "tiny"),
        ("anything", 1000, "world"),
    ];
    for (name, n_vocab, want) in cases {
        assert_eq!(seen(name, n_vocab), want, "{name}");
    }
    assert_eq!(Known::seen(&Seen { n_vocab: 2048, name: "x", is_small_world: true }).name, "g1");
}

#[test]
fn formats_have_names_and_settings() {
    let names = Format::names();
    assert_eq!(
        names.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["g1-think", "g1-fast", "g1", "instruct", "raven", "tiny", "world", "g1-bot", "g1-tools", "g1-tools-short", "template"]
    );
    assert!(names.iter().all(|(_, about)| !about.is_empty() && !about.contains('\n')));
    for known in KNOWN {
        let format = known.format();
        format.settings().sampling.check(65536).unwrap();
        assert_eq!((format.name(), format.interface()), (known.name, ":"));
        let first = &lines(known.name).init_prompt;
        assert!(first.is_empty() || first.contains(&format!("\n\n{}: ", format.bot())), "{}", known.name);
    }
    assert_eq!(KNOWN[4].format().settings(), Settings::default());
    for name in ["g1-think", "g1-fast", "g1"] {
        let known = KNOWN.iter().find(|known| known.name == name).unwrap();
        assert_eq!(known.format().settings().sampling, crate::sample::Sampling::preset(name).unwrap());
    }
}

#[test]
fn turns_have_the_form_of_training_data() {
    assert_eq!(lines("raven").turn("Hi"), "Bob: Hi\n\nAlice:");
    assert_eq!(lines("world").turn("Hi"), "User: Hi\n\nAssistant:");
    assert_eq!(lines("instruct").turn("Do it"), "Instruction: Do it\n\nResponse:");
    assert_eq!(lines("g1-think").turn("Hi") + lines("g1-think").opening, "User: Hi\n\nAssistant: <think");
    assert_eq!(lines("g1-fast").turn("Hi") + lines("g1-fast").opening, "User: Hi\n\nAssistant: <think></think");
    assert_eq!(lines("world").next_turn(), "\n\nUser:");
    assert_eq!(lines("tiny").beginning(""), "\nUser: light\n\nAssistant: And God said, Let there be light: and there was light.\n\n");
    assert_eq!(lines("tiny").beginning(" Be\n\nbrief. ").split_once("User").unwrap().0, "\nSystem: Be\nbrief.\n\n");
    assert_eq!((lines("g1").beginning("").as_str(), lines("g1").beginning("x").as_str()), ("", "System: x\n\n"));
}

#[test]
fn messages_become_one_text() {
    let talk = [
        Message::system("Be\n\nbrief."),
        Message::user(" a\n\n\nb "),
        Message::assistant("<think>hm</think>\n\nOne.\n\nTwo."),
        Message::user("c"),
    ];
    assert_eq!(
        lines("g1-think").whole(&talk).unwrap(),
        "System: Be\nbrief.\n\nUser: a\nb\n\nAssistant: One.\n\nTwo.\n\nUser: c\n\nAssistant: <think"
    );
    assert_eq!(
        lines("raven").whole(&talk).unwrap(),
        "System: Be\nbrief.\n\nBob: a\nb\n\nAlice: One.\nTwo.\n\nBob: c\n\nAlice:",
        "a blank line would end the reply"
    );
    let tool = [Message::user("a"), Message::assistant("b"), Message::observation("{\"t\": 7}")];
    assert_eq!(lines("g1").whole(&tool).unwrap(), "User: a\n\nAssistant: b\n\nUser: Function output:\n{\"t\": 7}\n\nAssistant:");
    let refused = |name: &str, messages: &[Message]| lines(name).whole(messages).unwrap_err().to_string();
    assert!(refused("world", &tool).starts_with("the chat format of this model does not support tool results"));
    assert!(
        refused("g1", &[Message::call("f", "{}"), Message::user("x")]).starts_with("the chat format of this model does not support tools")
    );
}

fn file(user: &str, bot: &str) -> InitialPrompt {
    InitialPrompt { user: user.into(), bot: bot.into(), interface: ":".into(), init_prompt: " x ".into() }
}

#[test]
fn a_prompt_file_changes_names_and_how_replies_end() {
    let g1 = KNOWN[0].format();
    let same = g1.clone().with_prompt(&file("User", "Assistant")).unwrap();
    assert_eq!(same.lines().unwrap(), &Lines { init_prompt: "\nx\n\n".into(), ..lines("g1-think") });
    let other = g1.with_prompt(&file("Bob", "Alice")).unwrap();
    assert_eq!((other.name(), other.user(), other.bot()), ("g1-think", "Bob", "Alice"));
    let Lines { opening, ending, .. } = other.lines().unwrap();
    assert_eq!((*opening, *ending), ("", ReplyEnd::BlankLine));
    let back = other.with_prompt(&file("User", "Assistant")).unwrap();
    assert_eq!(back.lines().unwrap().opening, " <think");
}

#[cfg(feature = "embedded-model")]
mod with_a_model {
    use super::*;
    use crate::chat::Question;
    use crate::sample::Sampling;
    use crate::session::{ModelSource, Options};
    use std::path::PathBuf;

    fn model(source: &ModelSource) -> Model {
        let options = Options { device: "cpu".parse().unwrap(), vocab: Some("small-world".into()), ..Default::default() };
        Model::load(source, &options, &mut |_, _| ()).unwrap()
    }

    #[test]
    fn the_embedded_model_has_its_own() {
        let model = model(&ModelSource::Embedded);
        assert_eq!(Format::of(&model).unwrap().name(), "g1");
        assert_eq!(Format::named("G1-Think", &model).unwrap().name(), "g1-think");
        let said = Format::named("chatml", &model).unwrap_err().to_string();
        assert!(said.starts_with("unknown chat format \"chatml\" for this model (chat formats: g1-think"), "{said}");
        assert!(Format::named("template", &model).is_err());
        let format = Format::named("world", &model).unwrap();
        let question = Question::new(&model, &format, &[Message::user("light")]).unwrap();
        assert_eq!(question.tokens, Vocab::small_world().encode(b"User: light\n\nAssistant:").unwrap());
        assert!(Question::new(&model, &format, &[]).unwrap_err().to_string().starts_with("messages: expected at least 1 message"));
    }

    #[test]
    fn the_name_of_glm_z1_determines_its_sampling_and_its_thoughts() {
        let from = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/glm-32b"));
        if !from.is_dir() {
            println!("SKIPPED the_name_of_glm_z1_determines_its_sampling_and_its_thoughts: there is no {}", from.display());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, generation: &str| {
            let to = folder.path().join(name);
            std::fs::create_dir(&to).unwrap();
            for file in ["config.json", "model.safetensors"] {
                std::fs::copy(from.join(file), to.join(file)).unwrap();
            }
            std::fs::write(to.join("generation_config.json"), generation).unwrap();
            let options = Options { device: "cpu".parse().unwrap(), ..Default::default() };
            let format = Format::of(&Model::load(&ModelSource::Path(to), &options, &mut |_, _| ()).unwrap()).unwrap();
            let FormatKind::Messages(messages) = &format.kind else { panic!("a GLM has a template") };
            let opening = crate::template::whole(&messages.template.render(&[Message::user("x")]).unwrap()).ends_with("<think>");
            let Sampling { temperature, top_p, .. } = format.settings().sampling;
            (temperature, top_p, opening)
        };
        assert_eq!(of("GLM-Z1-32B-0414", "{}"), (0.6, 0.95, true));
        assert_eq!(of("GLM-Z1-9B", r#"{"temperature": 0.7}"#), (0.7, 0.95, true));
        assert_eq!(of("GLM-4-32B-0414", "{}"), (0.8, 0.8, false));
    }

    #[test]
    fn a_folder_of_g1_has_its_template_and_its_settings() {
        use crate::template::Tool;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/models/small-world.safetensors"), &path).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("chat_template.jinja", "{{ messages[0].content }}");
        let model = model(&ModelSource::Path(path));
        assert_eq!(Format::of(&model).unwrap().name(), "tiny", "a template without the variables of G1 is not used");
        write("chat_template.jinja", include_str!("../../template/testing/rwkv-g1.jinja"));
        write("generation_config.json", r#"{"temperature": 0.5, "stop_strings": ["END"]}"#);
        write("tools_generation_config.json", r#"{"top_p": 0.5}"#);
        let format = Format::of(&model).unwrap();
        let prompt = |format: &Format, messages: &[Message]| {
            let question = Question::new(&model, format, messages).unwrap();
            (String::from_utf8(Vocab::small_world().decode(&question.tokens)).unwrap(), question.stop_texts)
        };
        let light = [Message::user("light")];
        assert_eq!((format.name(), format.settings().sampling.temperature), ("template", 0.5));
        assert_eq!(prompt(&format, &light), ("User✿light✿\nBot✿<think".into(), vec!["✿".into(), "END".into()]));
        let fast = format.clone().with_thinking(Thinking::Fast).unwrap();
        assert_eq!(fast.settings().sampling, crate::sample::Sampling::preset("g1-fast").unwrap());
        assert_eq!(prompt(&fast, &light).0, "User✿light✿\nBot✿<think></think");
        let tools = Message::system("").with_tools(vec![Tool::function(serde_json::json!({"name": "f"})).unwrap()]);
        let (text, stops) = prompt(&format, &[tools, light[0].clone()]);
        assert!(text.starts_with("### System\n### `f`\n") && stops[0] == "\n### User", "{text}");
        for format in [format.for_tools(), fast.for_tools(), Format::named("g1-tools", &model).unwrap()] {
            assert_eq!(format.settings().sampling.top_p, 0.5);
        }
        assert_eq!(Format::named("g1-think", &model).unwrap().settings().sampling.temperature, 0.5);
    }

    #[test]
    fn a_model_of_glms_kind_has_a_template() {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/tiny-glm4"));
        if !folder.is_dir() {
            println!("SKIPPED a_model_of_glms_kind_has_a_template: there is no {}", folder.display());
            return;
        }
        let model = model(&ModelSource::Path(folder));
        let format = Format::of(&model).unwrap();
        assert_eq!((format.name(), format.user(), format.bot(), format.interface()), ("template", "User", "Assistant", ":"));
        assert_eq!(format.settings().sampling, Sampling::glm());
        let said = Format::named("world", &model).unwrap_err().to_string();
        assert!(said.starts_with("this model has a chat template and cannot use the chat format \"world\""), "{said}");
        let said = format.clone().with_prompt(&file("A", "B")).unwrap_err().to_string();
        assert!(said.starts_with("a prompt file needs a chat format without a template"), "{said}");
    }
}

#[test]
fn a_glms_template_has_thoughts_on_and_off() {
    let generation = GenerationConfig::of(&Sampling::glm47());
    let messages = Messages { template: Arc::new(Glm47 { thinks: true }), generation };
    let format = Format { thinking: Some(Thinking::On), ..Format::of_kind(FormatKind::Messages(Box::new(messages))) };
    let Sampling { temperature, top_p, top_k, repeat_penalty, .. } = format.settings().sampling;
    assert_eq!((temperature, top_p, top_k, repeat_penalty), (1.0, 0.95, 0, 1.0));
    for (asked, want, end) in [
        (Thinking::Off, Thinking::Off, "</think>"),
        (Thinking::Fast, Thinking::Off, "</think>"),
        (Thinking::On, Thinking::On, "<think>"),
        (Thinking::Long, Thinking::On, "<think>"),
    ] {
        let other = format.clone().with_thinking(asked).unwrap();
        let FormatKind::Messages(messages) = &other.kind else { panic!("a format of messages") };
        assert!(messages.has_plain_answers());
        let parts = messages.template.render(&[Message::user("a")]).unwrap();
        assert_eq!(parts.last(), Some(&Part::Special(end)), "{asked:?}");
        assert_eq!((other.thinking(), other.settings().sampling), (Some(want), format.settings().sampling));
    }
    assert!(format.with_bos(true).is_err());
}

#[test]
fn tools_change_the_sampling_of_a_glm_47_that_has_no_settings_of_its_own() {
    let format = |generation| {
        let messages = Messages { template: Arc::new(Glm47 { thinks: true }), generation };
        Format::of_kind(FormatKind::Messages(Box::new(messages))).for_tools()
    };
    let generation = GenerationConfig { eos: vec![7], max_length: 99, ..GenerationConfig::of(&Sampling::glm47()) };
    let tools = format(generation.clone());
    assert_eq!((tools.settings().sampling, tools.settings().chat_len_max), (Sampling::preset("glm-4.7-tools").unwrap(), 99));
    let FormatKind::Messages(messages) = &tools.kind else { panic!("a format of messages") };
    assert_eq!(messages.generation.eos, [7]);
    let own = GenerationConfig { temperature: 0.5, ..generation };
    assert_eq!(format(own.clone()).settings().sampling, own.sampling());
}
