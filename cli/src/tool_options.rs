//! The options for tools of a conversation.

use super::prompt::utf8;
use super::tool_command::ToolCommand;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;
use wingbeat::chat::Tool;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::{read_at_most, with_place};

/// The maximum size, in bytes, of a file that declares tools.
const MAX_BYTES: u64 = 4 << 20;

#[derive(clap::Args)]
#[command(next_help_heading = "Tools")]
pub struct ToolArgs {
    /// Let the model call the tools (functions) that FILE declares as a JSON array, as in OpenAI's field `tools`. Chat asks you to type the result of each call, unless --tool-command is given
    #[arg(long, value_name = "FILE", conflicts_with = "load")]
    tools: Option<PathBuf>,
    /// Run PROGRAM for each tool call, without a shell: standard input is the call as JSON {"name", "arguments"}, standard output is the result. Put this flag last, or end ARGS with `;`
    #[arg(hide_short_help = true, long, value_name = "PROGRAM [ARGS]", num_args = 1.., allow_hyphen_values = true, value_terminator = ";")]
    tool_command: Vec<String>,
    /// Stop the program of --tool-command after this many seconds; the model then gets an error as the result
    #[arg(hide_short_help = true, long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    tool_timeout: Duration,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let found = text.trim().parse().ok().filter(|x: &f64| *x > 0.0);
    found.and_then(|x| Duration::try_from_secs_f64(x).ok()).ok_or_else(|| "expected a number of seconds above 0".into())
}

impl ToolArgs {
    /// Returns the tools in the file of `--tools`, or an empty list without the flag.
    ///
    /// # Errors
    /// `File` if the file cannot be read, `Input` if its content is not an array of tools.
    pub fn tools(&self) -> Result<Vec<Tool>> {
        let Some(path) = &self.tools else { return Ok(Vec::new()) };
        let in_file = |e: Error| e.at(path.display());
        let file = File::open(path).map_err(|e| Error::io(e, path))?;
        let text = read_at_most(file, MAX_BYTES).and_then(utf8).map_err(in_file)?;
        let tools: Vec<Tool> = serde_json::from_str(&text).map_err(|e| {
            let e = Error::input(format!("expected an array of tools: {}", with_place(&e))).caused_by(e);
            in_file(e.hint(r#"write an array such as [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]"#))
        })?;
        match tools.is_empty() {
            true => Err(in_file(Error::input("expected an array of tools, found an empty array"))),
            false => Ok(tools),
        }
    }

    /// Returns the command that runs tools, or `None` without `--tool-command`.
    pub fn command(&self) -> Result<Option<ToolCommand>> {
        if self.tool_command.is_empty() { Ok(None) } else { ToolCommand::new(&self.tool_command, self.tool_timeout).map(Some) }
    }
}
