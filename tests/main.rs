//! One binary for all integration tests: what a user of the library or of the command line can see.

mod golden;
mod support;
