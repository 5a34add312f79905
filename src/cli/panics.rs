//! Turns a panic into one line on stderr.

use super::output::say;
use crate::session::describe;
use std::panic::set_hook;

/// Makes a panic print one line without a backtrace, or nothing if the panic becomes the error of a request.
pub fn report() {
    set_hook(Box::new(|info| {
        let text = info.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if !describe(&text) {
            say(format_args!("internal error: {text}; please report"));
        }
    }));
}
