//! Tests with prompt files: the constructs of ChatRWKV's files, and hostile files.

use super::*;
use wingbeat::low_level::front_end::first_prompt;

fn python(text: &str) -> PromptFile {
    PromptFile::parse(text.as_bytes(), Language::Python).unwrap()
}

/// Returns the text of a Python expression that follows the assignments `before`.
fn value(before: &str, expression: &str) -> String {
    python(&format!("user = \"U\"\nbot = 'B'\n{before}\ninit_prompt = {expression}\n")).prompt.init_prompt
}

fn refusal(text: &str) -> String {
    let e = PromptFile::parse(text.as_bytes(), Language::Python).unwrap_err();
    assert_eq!(e.kind, wingbeat::error::Kind::File);
    let said = e.to_string();
    assert!(!said.contains('\n'), "{said}");
    said
}

#[test]
fn stock_files_are_read() {
    // As in ChatRWKV's English-3: comments after code, continued lines in a text, names reassigned for a second dialogue, and a print.
    let file = python(
        "interface = \":\"\nuser = \"James\" # only for the sample\nbot = \"Emma\"\n\n# A comment: '''\n\ninit_prompt = f'''\nA talk of {bot} and \
         {user}. \\\nMore.\n\n{user}{interface} It's \"fine\".\n\n{bot}{interface} [ok]\n'''\n\nuser = \"Bob\" # real\nbot = \"Alice\"\n\n\
         init_prompt += f'''\n{user}{interface} Hi {bot}\n'''\n\nprint('[[[ Loading a long prompt... ]]]')\n",
    );
    assert_eq!((file.prompt.user.as_str(), file.prompt.bot.as_str(), file.prompt.interface.as_str()), ("Bob", "Alice", ":"));
    assert_eq!(file.prompt.init_prompt, "\nA talk of Emma and James. More.\n\nJames: It's \"fine\".\n\nEmma: [ok]\n\nBob: Hi Alice\n");
    assert_eq!(
        first_prompt(&file.prompt.init_prompt),
        "\nA talk of Emma and James. More.\n\nJames: It's \"fine\".\n\nEmma: [ok]\n\nBob: Hi Alice\n\n"
    );
    // Windows line ends, a byte order mark, no newline at the end, no interface.
    let file = PromptFile::parse("\u{feff}user = 'Q'\r\nbot = 'A'\r\ninit_prompt = '''\r\nx\r\n'''".as_bytes(), Language::Python).unwrap();
    assert_eq!((file.prompt.user.as_str(), file.prompt.interface.as_str(), file.prompt.init_prompt.as_str()), ("Q", ":", "\nx\n"));
}

#[test]
fn every_literal_is_read_as_python_does() {
    let cases = [
        (r#"'a' "b" '''c''' """d""""#, "abcd"),
        (r#""it's" 'say "x"' '''it's "y"' '''"#, "it'ssay \"x\"it's \"y\"' "),
        (r#"'\n\t\\\'\"\a\b\f\r\v'"#, "\n\t\\'\"\u{7}\u{8}\u{c}\r\u{b}"),
        (r#"'\x41\u00e9\U0001F680\101\0\18\d'"#, "Aé🚀A\0\u{1}8\\d"),
        ("'a\\\nb'", "ab"),
        (r#"r'\n{user}\'' R"\d""#, "\\n{user}\\'\\d"),
        (r#"f'{user}: {{x}} {{{ bot }}}\n' F"{user}""#, "U: {x} {B}\nU"),
        (r#"rf'\n{user}' fR"\{bot}" u'x'"#, "\\nU\\Bx"),
        (r#"f'\x7buser\x7d'"#, "{user}"),
        (r#""#, ""),
    ];
    for (expression, want) in cases.into_iter().filter(|(e, _)| !e.is_empty()) {
        assert_eq!(value("", expression), want, "{expression}");
    }
}

#[test]
fn texts_are_put_together() {
    let cases = [
        ("", "user + ': ' + bot", "U: B"),
        ("", "(\n  'a'  # one\n  'b'\n\n  + user\n)", "abU"),
        ("", "'a' \\\n  'b'", "ab"),
        ("", "((('a') + ('b')))", "ab"),
        ("x = 'a'; x += 'b'; x += x", "x", "abab"),
        ("x = 'a'\nx = 'b'", "f'{x}'", "b"),
        ("x_1 = 'a'\né = x_1", "é", "a"),
        ("'''A text that\nstands alone.'''\n    # an indented comment\n\t\n", "'a'", "a"),
        ("print('''x''' + user)", "'a'", "a"),
    ];
    for (before, expression, want) in cases {
        assert_eq!(value(before, expression), want, "{before:?} {expression:?}");
    }
}

#[test]
fn what_would_have_to_run_is_refused_with_its_line() {
    let cases = [
        ("import os\n", "line 1: expected an assignment of a string to a name, found \"import os\""),
        ("\n\nfrom os import *", "line 3: expected an assignment"),
        ("user = open('/etc/passwd').read()", "line 1: expected a string in quotes or a name that has a value, found \"open"),
        ("user = 'a' + str(1)", "line 1: expected a string in quotes or a name"),
        ("user = 'a'.upper()", "line 1: expected the end of the line after the string, found \".upper()\""),
        ("user = 'a' * 1000000000", "line 1: expected the end of the line"),
        ("user = 'a' % 'b'", "line 1: expected the end of the line"),
        ("user = f'{__import__(\"os\")}'", "line 1: expected a string, found the expression {__import__"),
        ("user = f'a\\n{user!r}'", "line 1: expected a string, found the expression {user!r}"),
        ("user = f'''\n{user}'''", "line 2: expected a string, found {user}, a name without a value"),
        ("user = f'{'", "line 1: expected a string, found a { without a }"),
        ("user = f'}'", "line 1: expected a string, found a single }"),
        ("user = f'{}'", "line 1: expected a string, found the expression {}"),
        ("user = b'a'", "line 1: expected a string with the prefix r or f, or without a prefix"),
        ("user = '\\N{BULLET}'", "line 1: expected a string, found the escape \\N{"),
        ("user = '\\xZZ'", "line 1: expected a string, found \\xZZ, which is not a character"),
        ("user = '\\ud800'", "line 1: expected a string, found \\ud800, which is not a character"),
        ("user = '\\U99999999'", "line 1: expected a string, found \\U99999999"),
        ("user = '\\u12", "line 1: expected a string that ends with '"),
        ("user = 'a\n'", "line 1: expected a string that ends with '"),
        ("user = '''a\n\n", "line 1: expected a string that ends with '''"),
        ("user = 'a\\", "line 1: expected a string that ends with '"),
        ("user = 3", "line 1: expected a string in quotes, found \"3\""),
        ("user =", "line 1: expected a string in quotes, found the end"),
        ("user = ('a'", "line 1: expected a closing parenthesis"),
        ("user == 'a'", "line 1: expected an assignment"),
        ("user += 'a'", "line 1: expected user to have a value"),
        ("user, bot = 'a', 'b'", "line 1: expected an assignment"),
        ("x = 'a'\n  user = 'b'", "line 2: expected an assignment at the beginning of its line"),
        ("if True:\n    user = 'a'", "line 1: expected an assignment"),
        ("def f(): pass", "line 1: expected an assignment"),
        ("print(user)", "line 1: expected a string in quotes or a name"),
        ("exec('user = 1')", "line 1: expected an assignment"),
        ("user = lambda: 'a'", "line 1: expected a string in quotes or a name"),
        ("\0", "line 1: expected an assignment"),
        ("bot = 'a'\ninit_prompt = ''", "the prompt file does not assign user"),
        ("user = 'a'\ninit_prompt = ''", "the prompt file does not assign bot"),
        ("user = 'a'\nbot = 'b'", "the prompt file does not assign init_prompt"),
        ("user = ' '\nbot = 'b'\ninit_prompt = ''", "expected a name that is not empty and has no newline as user, found \" \""),
        ("user = 'a'\nbot = 'b\\nc'\ninit_prompt = ''", "expected a name that is not empty and has no newline as bot"),
    ];
    for (text, want) in cases {
        let said = refusal(text);
        assert!(said.starts_with(want), "{text:?}: {said}");
    }
    let said = PromptFile::parse(b"user = 'a'\nbot = '\xff'", Language::Python).unwrap_err().to_string();
    assert_eq!(said, "line 2: expected UTF-8 text");
}

#[test]
fn a_text_cannot_grow_without_end() {
    let doubled = format!("x = 'aaaaaaaa'\n{}", "x += x\n".repeat(64));
    assert!(refusal(&doubled).contains("expected a string of at most 8388608 bytes"), "{}", refusal(&doubled));
    let listed = format!("x = 'aaaaaaaaaaaaaaaa'\n{}", "x = f'{x}{x}{x}{x}'\n".repeat(30));
    assert!(refusal(&listed).contains("a text of more than 8388608 bytes"), "{}", refusal(&listed));
    let sum = format!("x = '{}'\ny = x{}", "a".repeat(1 << 20), " + x".repeat(100));
    assert!(refusal(&sum).contains("expected a string of at most"));
    // First assign one text to many names, then refer to the text many times in one f-string.
    let long = format!("x = '{}'\n", "a".repeat(1 << 20));
    let copies = format!("{long}{}", (0..100).map(|i| format!("a{i} = x\n")).collect::<String>());
    assert!(refusal(&copies).contains("bytes together"), "{}", refusal(&copies));
    assert!(refusal(&format!("{long}y = f'{}'", "{x}".repeat(10_000))).contains("a text of more than"));
    assert!(refusal(&format!("a = ''\n{}", "a = a\n".repeat(200_000))).starts_with("the prompt file does not assign user"));
    assert!(refusal(&format!("x = {}'a'", "(".repeat(100_000))).starts_with("line 1: expected a string in quotes"));
    assert!(refusal(&"\\\n".repeat(100_000)).starts_with("the prompt file does not assign user"));
}

#[test]
fn toml_is_read() {
    let parse = |text: &str| PromptFile::parse(text.as_bytes(), Language::Toml);
    let text = "user = 'U'\nbot = \"B\"\ninit_prompt = '''\nU: x\n'''\n[settings]\nGEN_TEMP = 0.5\nCHUNK_LEN = 64\nAVOID_REPEAT = '!'\n";
    let file = parse(text).unwrap();
    assert_eq!(
        (file.prompt.user.as_str(), file.prompt.bot.as_str(), file.prompt.interface.as_str(), file.prompt.init_prompt.as_str()),
        ("U", "B", ":", "U: x\n")
    );
    let settings: Vec<(&str, &str)> = file.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(settings, [("GEN_TEMP", "0.5"), ("CHUNK_LEN", "64"), ("AVOID_REPEAT", "!")]);
    for (text, want) in [
        ("user = 'U'\nbot = B", "line 2: "),
        ("user = 'U'\n\nname = 'x'", "line 3: unknown key \"name\"; known keys: user"),
        ("user = 1", "line 1: found the number 1 instead of a string"),
        ("user = 'U'\nbot = 'B'", "line 1: the key \"init_prompt\" is missing"),
        ("user = ''\nbot = 'B'\ninit_prompt = ''", "expected a name that is not empty and has no newline as user"),
        ("user = 'U'\nbot = 'B'\ninit_prompt = ''\n[settings]\nx = [1]", "settings.x: expected a number or a string, found an array"),
    ] {
        let said = parse(text).unwrap_err().to_string();
        assert!(said.starts_with(want) && !said.contains('\n'), "{text:?}: {said}");
    }
}

#[test]
fn built_in_prompts_are_there_and_files_come_first() {
    let names = PromptFile::names();
    assert_eq!(names, ["English-1", "English-2", "Chinese-1", "Chinese-2", "Japanese-1", "Japanese-2"]);
    for name in names {
        let file = PromptFile::built_in(name).unwrap();
        let two_people = name.ends_with("-2");
        assert_eq!(
            (file.prompt.user.as_str(), file.prompt.bot.as_str()),
            if two_people { ("Bob", "Alice") } else { ("User", "Bot") },
            "{name}"
        );
        let prompt = first_prompt(&file.prompt.init_prompt);
        let turns = |name: &str| prompt.matches(&format!("\n\n{name}{} ", file.prompt.interface)).count();
        assert!(turns(&file.prompt.user) >= 4 && turns(&file.prompt.user) == turns(&file.prompt.bot), "{name} has turns in pairs");
        assert!(!prompt.contains("\n\n\n") && !prompt.contains('\\'), "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let said = PromptFile::find(&at("none.py")).unwrap_err().to_string();
    assert!(said.contains("none.py: no such file, and no built-in prompt file of this name (built-in prompt files: English-1"), "{said}");
    assert_eq!(PromptFile::find(Path::new("english-2")).unwrap(), PromptFile::built_in("English-2").unwrap());
    std::fs::write(at("a.PY"), "user = 'a'\nbot = 'b'\ninit_prompt = 'c'").unwrap();
    assert_eq!(PromptFile::find(&at("a.PY")).unwrap().prompt.init_prompt, "c");
    std::fs::write(at("a.toml"), "user = 'a'\nbot = 'b'\ninit_prompt = 'd'").unwrap();
    assert_eq!(PromptFile::find(&at("a.toml")).unwrap().prompt.init_prompt, "d");
    std::fs::write(at("b.py"), "import os").unwrap();
    let said = PromptFile::find(&at("b.py")).unwrap_err().to_string();
    assert!(said.contains("b.py: line 1: expected an assignment"), "{said}");
    assert!(PromptFile::find(folder.path()).is_err(), "a folder is no file");
}
