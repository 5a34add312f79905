//! Tests of the tokens that each command prefills. The expected tokens are the encoded texts of ChatRWKV.

use super::*;

#[test]
fn a_message_reads_a_turn_and_keeps_the_reply() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    assert_eq!(tokens(&chat, "chat_init"), encode(FIRST));
    assert_eq!(tokens(&chat, "chat"), encode(FIRST));
    script.says_text(" Hi there.\n\n");
    let answered = answer(&mut chat, " one\n\ntwo\r\nthree ");
    assert_eq!((answered.text.as_str(), answered.finish), ("Hi there.", Finish::Stop));
    assert_eq!(answered.tokens, encode(" Hi there.\n\n"));
    let turn = "Bob: one\ntwo\nthree\n\nAlice:";
    assert_eq!(answered.n_prompt, encode(turn).len());
    assert_eq!(tokens(&chat, "chat_pre"), encoded(&[FIRST, turn]));
    assert_eq!(chat.tokens(), encoded(&[FIRST, turn, " Hi there.\n\n"]));
    // In the next turn, another reply replaces the first reply.
    script.says_text(" A\n\n");
    answer(&mut chat, "two");
    script.says_text(" B\n\n");
    let other = answer(&mut chat, "+");
    assert_eq!((other.text.as_str(), other.n_prompt), ("B", 0));
    assert_eq!(chat.tokens(), encoded(&[FIRST, turn, " Hi there.\n\n", "Bob: two\n\nAlice:", " B\n\n"]));
    chat.reset();
    assert_eq!(chat.tokens(), encode(FIRST));
    // As in ChatRWKV, the question before the reset can still be answered.
    script.says_text(" C\n\n");
    answer(&mut chat, "+");
    assert_eq!(chat.tokens(), encoded(&[FIRST, turn, " Hi there.\n\n", "Bob: two\n\nAlice:", " C\n\n"]));
}

#[test]
fn free_generations_read_their_prompts() {
    let cases = [
        ("+gen Once\n\nupon", "\nOnce\n\nupon", false),
        (
            "+i Write\n\na  verse ",
            "\nBelow is an instruction that describes a task. Write a response that appropriately completes the request.\n\n# Instruction:\nWrite\na  verse\n\n# Response:\n",
            false,
        ),
        ("+qq Why?", "\nQ: Why?\nA:", false),
        ("+qa Why?", "Bob: Why?\n\nAlice:", true),
    ];
    for (line, prompt, after_first) in cases {
        let mut chat = bob_and_alice();
        let script = Script::of(&mut chat);
        let before = encoded(&[FIRST, "Bob: x\n\nAlice:", " y\n\n"]);
        script.says_text(" y\n\n");
        answer(&mut chat, "x");
        // The answer ends at the end-of-text token, which the state does not read.
        script.says(&[encode(" because\n\nof it"), vec![0]].concat());
        let answered = answer(&mut chat, line);
        assert_eq!((answered.text.as_str(), answered.finish), (" because\n\nof it", Finish::Eos), "{line}");
        let gen_0 = if after_first { encoded(&[FIRST, prompt]) } else { encode(prompt) };
        let gen_1 = [gen_0.clone(), encode(" because\n\nof it")].concat();
        assert_eq!((tokens(&chat, "gen_0"), tokens(&chat, "gen_1")), (gen_0.clone(), gen_1.clone()), "{line}");
        assert_eq!((chat.tokens(), answered.n_prompt), (before.as_slice(), encode(prompt).len()), "the conversation is unchanged");
        // The next command samples another answer to the same prompt. The one after it continues this answer.
        script.says(&[encode(" no"), vec![0]].concat());
        assert_eq!(answer(&mut chat, "++").text, " no");
        assert_eq!((tokens(&chat, "gen_0"), tokens(&chat, "gen_1")), (gen_0.clone(), [gen_0.clone(), encode(" no")].concat()));
        script.says(&[encode(" more"), vec![0]].concat());
        assert_eq!(answer(&mut chat, "+++").text, " more");
        let more = [gen_0, encode(" no")].concat();
        assert_eq!((tokens(&chat, "gen_0"), tokens(&chat, "gen_1")), (more.clone(), [more, encode(" more")].concat()));
    }
}

#[test]
fn lines_have_no_tools() {
    let mut chat = bob_and_alice();
    assert!(
        chat.observe(&["7"], &mut quiet)
            .unwrap_err()
            .to_string()
            .starts_with("the chat format of this conversation does not support tools")
    );
    assert!(chat.set_tools(Vec::new()).is_err());
}

#[test]
fn a_free_generation_ends_at_its_length_with_a_whole_character() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    chat.set("FREE_GEN_LEN", "4").unwrap();
    let x = encode("x")[0];
    script.says(&[x; 300]);
    assert_eq!(answer(&mut chat, "+gen x").tokens, [x; 5], "the token at the length is the last");
    script.next.lock().unwrap().clear();
    // Each byte of the character is a token. Tokens beyond the length limit complete the character.
    let byte = |b: u8| (0..2048).find(|&id| Vocab::small_world().token(id) == [b]).unwrap();
    let rocket: Vec<u32> = "🚀".bytes().map(byte).collect();
    script.says(&[vec![x; 3], rocket.clone(), vec![x; 300]].concat());
    let answered = answer(&mut chat, "+gen x");
    assert_eq!((answered.tokens, answered.text.as_str()), ([vec![x; 3], rocket.clone()].concat(), "xxx🚀"));
    script.next.lock().unwrap().clear();
    // These bytes never become a character. Each byte becomes a replacement character, once the next byte shows that the character is invalid.
    script.says(&[rocket[0]; 300]);
    let answered = answer(&mut chat, "+gen x");
    assert_eq!((answered.tokens.len(), answered.finish), (104, Finish::Length));
    assert_eq!(answered.text, "\u{fffd}".repeat(104));
}

#[test]
fn another_format_begins_another_conversation() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    script.says_text(" y\n\n");
    answer(&mut chat, "x");
    let (format, settings) = (chat.format().clone(), chat.settings().clone());
    let with = |prompt: &InitialPrompt| format.clone().with_prompt(prompt).unwrap();
    chat.set_format(with(&prompt("Q", "A", " -", "Q - 1\n\nA - 2 ")), settings.clone()).unwrap();
    let first = "\nQ - 1\n\nA - 2\n\n";
    assert_eq!((tokens(&chat, "chat_init"), tokens(&chat, "chat")), (encode(first), encode(first)), "from the empty state");
    assert_eq!((chat.format().user(), chat.format().bot(), chat.format().interface()), ("Q", "A", " -"));
    script.says_text(" 4\n\n");
    answer(&mut chat, "3");
    assert_eq!(chat.tokens(), encoded(&[first, "Q - 3\n\nA -", " 4\n\n"]));
    chat.reset();
    assert_eq!(chat.tokens(), encode(first));
    // After invalid settings, the conversation is unchanged.
    let wrong = Settings { chunk_len: 3, sampling: Sampling { temperature: -1.0, ..Sampling::greedy(0) }, ..Settings::default() };
    chat.set_format(format.clone(), wrong).unwrap_err();
    assert_eq!((chat.settings().chunk_len, chat.tokens()), (256, encode(first).as_slice()));
    let settings = Settings { chunk_len: 3, ..settings };
    chat.set_format(with(&prompt("Q", "A", ":", "")), settings).unwrap();
    assert_eq!((chat.settings().chunk_len, chat.tokens().len()), (3, 0));
}
