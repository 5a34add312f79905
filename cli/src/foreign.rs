//! Flags and values of other programs (llama.cpp, vLLM, Ollama), and wingbeat's names for them.

use std::ffi::OsString;

/// The hint for a flag that names a model on Hugging Face.
const IN_REPOSITORY: &str = "wingbeat's form is -m hf:OWNER/REPO[/FILE], for example -m hf:zai-org/glm-4-9b-chat";

/// The hint for a flag that keeps experts on the CPU.
const ON_CPU: &str = "--strategy 'gpu fp16, experts cpu' runs the experts on the CPU";

/// Flags that wingbeat does not have, and hints.
const FLAGS: &[(&str, &str)] = &[
    ("--api-key", "keys come from --key-file, or from the environment variable WINGBEAT_API_KEYS"),
    ("--metrics", "metrics are always on: GET /metrics"),
    ("--slots-endpoint", "GET /slots is always on"),
    ("-hf", IN_REPOSITORY),
    ("-hfr", IN_REPOSITORY),
    ("--hf", IN_REPOSITORY),
    ("--hf-repo", IN_REPOSITORY),
    ("-hff", IN_REPOSITORY),
    ("--hf-file", IN_REPOSITORY),
    ("-mu", "wingbeat's name is -m"),
    ("--model-url", "wingbeat's name is -m"),
    ("-ngl", "--device gpu runs all layers on the GPU; --strategy 'gpu fp16 *10 -> cpu fp32' divides them"),
    ("--n-gpu-layers", "--device gpu runs all layers on the GPU; --strategy 'gpu fp16 *10 -> cpu fp32' divides them"),
    ("--gpu-layers", "--device gpu runs all layers on the GPU; --strategy 'gpu fp16 *10 -> cpu fp32' divides them"),
    ("-cmoe", ON_CPU),
    ("--cpu-moe", ON_CPU),
    ("-ncmoe", "--strategy 'gpu fp16, experts cpu *20' runs the experts of the last 20 layers on the CPU"),
    ("--n-cpu-moe", "--strategy 'gpu fp16, experts cpu *20' runs the experts of the last 20 layers on the CPU"),
    ("-ot", ON_CPU),
    ("--override-tensor", ON_CPU),
    ("-sys", "wingbeat's name is --system"),
    ("--system-prompt", "wingbeat's name is --system"),
    ("--ctx-size", "wingbeat's name is --context"),
    ("--max-model-len", "wingbeat's name is --context"),
    ("-cnv", "`wingbeat chat` is a conversation"),
    ("--conversation", "`wingbeat chat` is a conversation"),
    ("-np", "wingbeat's name is --slots"),
    ("--parallel", "wingbeat's name is --slots"),
    ("--max-num-seqs", "wingbeat's name is --slots"),
    ("--served-model-name", "a model's name is a part of -m: -m NAME=PATH"),
    ("--alias", "a model's name is a part of -m: -m NAME=PATH"),
    ("-fa", "attention needs no flag"),
    ("--flash-attn", "attention needs no flag"),
    ("--mlock", "weights are in the memory of the device, or mapped from the file"),
    ("--chat-template", "wingbeat's name is --format"),
    ("--jinja", "templates need no flag; --format chooses one"),
    ("--quantization", "wingbeat's name is --quant"),
    ("--tensor-parallel-size", "--strategy 'gpu:0 fp16 *12 -> gpu:1 fp16' divides the layers among GPUs"),
];

/// Flags for the length of a text that other commands have, and a hint. A chat has a setting in their place.
const NOT_IN_CHAT: [&str; 2] = ["-n", "--max-tokens"];
const IN_CHAT: &str = "type /set CHAT_LEN_MAX N in the chat, or write CHAT_LEN_MAX = N under [settings] in a prompt file";

/// Returns the first flag in the arguments `given` that another program or another command has and this command lacks, with a hint.
pub fn flag(given: &[OsString]) -> Option<(&'static str, &'static str)> {
    let is_chat = given.get(1).is_some_and(|command| command == "chat");
    given.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()).find_map(|word| {
        let name = word.split('=').next().unwrap_or(word);
        let of_chat = NOT_IN_CHAT.iter().filter(|_| is_chat).find(|flag| **flag == name).map(|flag| (*flag, IN_CHAT));
        of_chat.or_else(|| FLAGS.iter().find(|(flag, _)| *flag == name).copied())
    })
}

/// Returns a hint for the name of a weight format that other programs use, or `None` if the name is unknown.
pub fn quant(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let begins = |all: &[&str]| all.iter().any(|start| name.starts_with(start));
    if begins(&["q4_k"]) {
        Some("wingbeat's nearest format is q4_k")
    } else if begins(&["q5_k"]) {
        Some("wingbeat's nearest format is q5_k")
    } else if begins(&["q3_k"]) {
        Some("wingbeat's nearest format is q3_k")
    } else if begins(&["q8", "int8", "8bit", "fp8", "w8", "bnb-8"]) || name == "8" {
        Some("wingbeat's formats of 8 bits are i8 and q8_0")
    } else if begins(&["q4", "iq4", "int4", "4bit", "fp4", "w4", "awq", "gptq", "bnb-4"]) || name == "4" {
        Some("wingbeat's formats of 4 bits are i4 (fast), nf4 and q4_k (closer to the model)")
    } else if begins(&["q5", "q6"]) {
        Some("wingbeat has q6_k, q5_k and q5_0")
    } else if begins(&["q2", "q3", "iq1", "iq2", "iq3"]) {
        Some("wingbeat's smallest formats are q3_k and q2_k; i4 has 4 bits")
    } else if matches!(name.as_str(), "none" | "fp16" | "bf16" | "float16" | "bfloat16" | "fp32" | "f32" | "float32") {
        Some("leave out --quant; --dtype chooses f16 or f32")
    } else {
        None
    }
}

/// Returns the first flag of another program in `given` if it begins with `-h`, such as `-hf`. Clap reads such a flag as `-h` and prints the help.
pub fn read_as_help(given: &[OsString]) -> Option<(&'static str, &'static str)> {
    flag(given).filter(|(flag, _)| flag.starts_with("-h"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;
    use wingbeat::low_level::exec::strategy::Strategy;

    #[test]
    fn no_command_has_a_flag_of_this_list() {
        let command = Cli::command();
        for sub in command.get_subcommands() {
            for flag in sub.get_arguments().flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default()) {
                assert!(FLAGS.iter().all(|(known, _)| known.trim_start_matches('-') != flag), "{flag} of {}", sub.get_name());
            }
        }
    }

    #[test]
    fn strategies_in_hints_are_valid() {
        let quoted = FLAGS.iter().filter_map(|(_, hint)| hint.split_once("--strategy '")?.1.split_once('\'')).map(|(text, _)| text);
        let all: Vec<Strategy> = quoted.map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))).collect();
        assert!(all.len() >= 4);
    }

    #[test]
    fn formats_of_other_programs_have_hints() {
        for (name, want) in [("Q4_K_M", "q4_k"), ("int8", "i8"), ("q6", "q6_k"), ("bf16", "--dtype"), ("IQ2_XS", "q2_k")] {
            assert!(quant(name).unwrap().contains(want), "{name}");
        }
        assert_eq!(quant("nf5"), None);
    }
}
