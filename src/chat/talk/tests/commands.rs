//! Which tokens each command reads: the texts of the original, encoded by hand.

use super::*;

#[test]
fn a_message_reads_a_turn_and_keeps_the_reply() {
    let mut talk = bob_and_alice();
    let script = Script::of(&mut talk);
    assert_eq!(tokens(&talk, "chat_init"), encode(FIRST));
    assert_eq!(tokens(&talk, "chat"), encode(FIRST));
    script.says_text(" Hi there.\n\n");
    let answered = answer(&mut talk, " one\\n\\ntwo\r\nthree ");
    assert_eq!((answered.text.as_str(), answered.finish), ("Hi there.", Finish::Stop));
    assert_eq!(answered.tokens, encode(" Hi there.\n\n"));
    let turn = "Bob: one\ntwo\nthree\n\nAlice:";
    assert_eq!(answered.n_prompt, encode(turn).len());
    assert_eq!(tokens(&talk, "chat_pre"), encoded(&[FIRST, turn]));
    assert_eq!(talk.transcript(), encoded(&[FIRST, turn, " Hi there.\n\n"]));
    // The next turn follows, and another reply takes the place of its own.
    script.says_text(" A\n\n");
    answer(&mut talk, "two");
    script.says_text(" B\n\n");
    let other = answer(&mut talk, "+");
    assert_eq!((other.text.as_str(), other.n_prompt), ("B", 0));
    assert_eq!(talk.transcript(), encoded(&[FIRST, turn, " Hi there.\n\n", "Bob: two\n\nAlice:", " B\n\n"]));
    assert_eq!(message(say(&mut talk, "+reset")), "Chat reset.");
    assert_eq!(talk.transcript(), encode(FIRST));
    // As in the original, the question before it can still be answered.
    script.says_text(" C\n\n");
    answer(&mut talk, "+");
    assert_eq!(talk.transcript(), encoded(&[FIRST, turn, " Hi there.\n\n", "Bob: two\n\nAlice:", " C\n\n"]));
}

#[test]
fn free_generations_read_their_prompts() {
    let cases = [
        ("+gen  Once\\n\\nupon ", "\nOnce\n\nupon", false),
        (
            "+i Write\\n\\na  verse ",
            "\nBelow is an instruction that describes a task. Write a response that appropriately completes the request.\n\n# Instruction:\nWrite\na  verse\n\n# Response:\n",
            false,
        ),
        ("+qq Why? ", "\nQ: Why?\nA:", false),
        ("+qa Why? ", "Bob: Why?\n\nAlice:", true),
    ];
    for (line, prompt, behind_first) in cases {
        let mut talk = bob_and_alice();
        let script = Script::of(&mut talk);
        let chat = encoded(&[FIRST, "Bob: x\n\nAlice:", " y\n\n"]);
        script.says_text(" y\n\n");
        answer(&mut talk, "x");
        // It ends at the end of the text, which is not read.
        script.says(&[encode(" because\n\nof it"), vec![0]].concat());
        let answered = answer(&mut talk, line);
        assert_eq!((answered.text.as_str(), answered.finish), (" because\n\nof it", Finish::Eos), "{line}");
        let gen_0 = if behind_first { encoded(&[FIRST, prompt]) } else { encode(prompt) };
        let gen_1 = [gen_0.clone(), encode(" because\n\nof it")].concat();
        assert_eq!((tokens(&talk, "gen_0"), tokens(&talk, "gen_1")), (gen_0.clone(), gen_1.clone()), "{line}");
        assert_eq!((talk.transcript(), answered.n_prompt), (chat.as_slice(), encode(prompt).len()), "the conversation is as it was");
        // Another one from the same place, and more of that.
        script.says(&[encode(" no"), vec![0]].concat());
        assert_eq!(answer(&mut talk, "++").text, " no");
        assert_eq!((tokens(&talk, "gen_0"), tokens(&talk, "gen_1")), (gen_0.clone(), [gen_0.clone(), encode(" no")].concat()));
        script.says(&[encode(" more"), vec![0]].concat());
        assert_eq!(answer(&mut talk, "+++").text, " more");
        let more = [gen_0, encode(" no")].concat();
        assert_eq!((tokens(&talk, "gen_0"), tokens(&talk, "gen_1")), (more.clone(), [more, encode(" more")].concat()));
    }
}

#[test]
fn commands_without_a_state_do_nothing() {
    let mut talk = bob_and_alice();
    for line in ["+", "++", "+++"] {
        assert!(matches!(say(&mut talk, line), Told::Nothing), "{line}");
    }
    assert_eq!(message(say(&mut talk, "  ")), "Error: please say something");
    assert_eq!(message(say(&mut talk, "+gen")), "Error: +gen wants a text behind it");
    assert_eq!(talk.transcript(), encode(FIRST));
    assert!(talk.say("-temp=x hi", &mut |_| ControlFlow::Continue(())).unwrap_err().to_string().starts_with("-temp=: "));
}

#[test]
fn a_free_generation_ends_at_its_length_with_a_whole_character() {
    let mut talk = bob_and_alice();
    let script = Script::of(&mut talk);
    talk.set("FREE_GEN_LEN", "4").unwrap();
    let x = encode("x")[0];
    script.says(&[x; 300]);
    assert_eq!(answer(&mut talk, "+gen x").tokens, [x; 5], "the token at the length is the last");
    script.next.lock().unwrap().clear();
    // A character of which each byte is a token: it is completed, but not without end.
    let byte = |b: u8| (0..2048).find(|&id| Vocab::tiny().token(id) == [b]).unwrap();
    let rocket: Vec<u32> = "🚀".bytes().map(byte).collect();
    script.says(&[vec![x; 3], rocket.clone(), vec![x; 300]].concat());
    let answered = answer(&mut talk, "+gen x");
    assert_eq!((answered.tokens, answered.text.as_str()), ([vec![x; 3], rocket.clone()].concat(), "xxx🚀"));
    script.next.lock().unwrap().clear();
    // It never becomes a character: where a byte shows that, a mark stands for the bytes before it.
    script.says(&[rocket[0]; 300]);
    let answered = answer(&mut talk, "+gen x");
    assert_eq!((answered.tokens.len(), answered.finish), (104, Finish::Length));
    assert_eq!(answered.text, "\u{fffd}".repeat(104));
}

#[test]
fn prompt_files_begin_another_conversation() {
    let mut talk = bob_and_alice();
    let script = Script::of(&mut talk);
    script.says_text(" y\n\n");
    answer(&mut talk, "x");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.py");
    std::fs::write(&path, "user = 'Q'\nbot = 'A'\ninterface = ' -'\ninit_prompt = f'''{user}{interface} 1\n\n{bot}{interface} 2 '''")
        .unwrap();
    assert_eq!(message(say(&mut talk, &format!("+Prompt {}", path.display()))), "Prompt set up.");
    let first = "\nQ - 1\n\nA - 2\n\n";
    assert_eq!((tokens(&talk, "chat_init"), tokens(&talk, "chat")), (encode(first), encode(first)), "from the empty state");
    assert_eq!((talk.format().user(), talk.format().bot(), talk.format().interface()), ("Q", "A", " -"));
    script.says_text(" 4\n\n");
    answer(&mut talk, "3");
    assert_eq!(talk.transcript(), encoded(&[first, "Q - 3\n\nA -", " 4\n\n"]));
    assert_eq!(message(say(&mut talk, "+reset")), "Chat reset.");
    assert_eq!(talk.transcript(), encode(first));

    // What is wrong with a file is said, and changes nothing.
    std::fs::write(&path, "import os").unwrap();
    for (line, want) in [
        (format!("+prompt {}", path.display()), "line 1: expected an assignment"),
        ("+prompt nowhere.py".into(), "nowhere.py: expected a prompt file"),
    ] {
        let said = message(say(&mut talk, &line));
        assert!(said.starts_with("Path error. ") && said.contains(want) && !said.contains('\n'), "{said}");
    }
    let path = folder.path().join("c.toml");
    let toml = |settings: &str| format!("user = 'Q'\nbot = 'A'\ninit_prompt = ''\n[settings]\n{settings}");
    std::fs::write(&path, toml("CHUNK_LEN = 3\nGEN_TEMP = -1")).unwrap();
    let said = message(say(&mut talk, &format!("+prompt {}", path.display())));
    assert!(said.contains("c.toml: ") && said.contains("temperature: expected a number from 0, found -1"), "{said}");
    assert_eq!((talk.settings().chunk_len, talk.transcript()), (256, encode(first).as_slice()));
    std::fs::write(&path, toml("CHUNK_LEN = 3\nGEN_TEMP = 0.5")).unwrap();
    assert_eq!(message(say(&mut talk, &format!("+prompt {}", path.display()))), "Prompt set up.");
    assert_eq!((talk.settings().chunk_len, talk.settings().sampling.temperature, talk.transcript().len()), (3, 0.5, 0));
    assert_eq!(message(say(&mut talk, "+prompt english-1")), "Prompt set up.");
    assert_eq!(talk.transcript(), encode(&crate::chat::prompt_file::first_prompt(&PromptFile::built_in("English-1").unwrap().init_prompt)));
}

#[test]
fn settings_in_a_message_are_not_part_of_it() {
    let mut talk = bob_and_alice();
    let script = Script::of(&mut talk);
    script.says_text(" y\n\n");
    answer(&mut talk, "what -temp=0.80 is -top_p=0.5 it");
    assert_eq!(tokens(&talk, "chat_pre"), encoded(&[FIRST, "Bob: what  is  it\n\nAlice:"]));
    assert!(Talk::is_reply("hi") && Talk::is_reply("+ -temp=1"));
    for line in ["++", "+gen x", "+reset", "", "-temp=x"] {
        assert!(!Talk::is_reply(line), "{line:?}");
    }
}

#[test]
fn a_text_of_the_system_comes_first() {
    let mut talk = bob_and_alice();
    talk.system("Be\n\nbrief.").unwrap();
    let first = "\nSystem: Be\nbrief.\n\nBob: hi\n\nAlice: hello\n\n";
    assert_eq!((tokens(&talk, "chat_init"), talk.transcript()), (encode(first), encode(first).as_slice()));
    assert_eq!(message(say(&mut talk, "+prompt English-1")), "Prompt set up.");
    assert!(decode(talk.transcript()).starts_with("\nSystem: Be\nbrief.\n\nBelow, User asks"));
    talk.system("").unwrap();
    assert!(decode(talk.transcript()).starts_with("\nBelow, User asks"));
}
