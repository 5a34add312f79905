//! The modules that sessions are built on: checkpoints, architectures, words (fused operations), kernels and executors. These modules are documented
//! for authors of kernels, formats and architectures. The modules are not stable: names may change in any version.

#[doc(inline)]
pub use crate::{arch, assets, exec, quant, sample, session, tape, template, tensor, weights, words};

/// Parts of the library that its own front ends (program, server, Python, browser) use, and that other programs rarely need.
pub mod front_end {
    pub use crate::chat::answer_prefix::{is_begun, with_thought};
    pub use crate::chat::format::first_prompt;
    pub use crate::chat::linked::{LinkedMessage, in_call_order};
    pub use crate::conversation::file::METADATA_KEY;
    #[cfg(feature = "grammar")]
    pub use crate::engine::closed::open as open_schema;
    #[cfg(feature = "grammar")]
    pub use crate::engine::followers::Followers;
    pub use crate::engine::prepare::Preparer;
    pub use crate::engine::wire::is_empty_value;
    pub use crate::error::json::{escaped, in_words, with_place};
    pub use crate::error::texts::{short, size};
    pub use crate::error::try_alloc::{HINT as MEMORY_HINT, is_handled, read_at_most};
    pub use crate::exec::wait;
    pub use crate::files::without_mark;
    pub use crate::vocab::choose::{Choice, WORLD_ROWS};
    pub use crate::vocab::literal::unescape_text;
}
