//! Reports a panic as one line on stderr.

use super::output::say;
use std::panic::set_hook;
use wingbeat::low_level::session::describe;

/// Installs a hook that prints a panic as one line without a backtrace. If the panic becomes the error of a request, the hook prints
/// nothing.
pub fn report() {
    set_hook(Box::new(|info| {
        let text = info.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if !describe(&text) {
            say(format_args!("internal error: {text}; please report"));
        }
    }));
}
