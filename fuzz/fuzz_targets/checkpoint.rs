//! A checkpoint of any kind: opens the file, determines the architecture, decodes small tensors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wingbeat::error::Result;
use wingbeat::session::Options;
use wingbeat::weights::Checkpoint;
use wingbeat_fuzz::{count, with_file};

fn read(path: &std::path::Path) -> Result<()> {
    let checkpoint = Checkpoint::open(path)?;
    for name in checkpoint.names() {
        let view = checkpoint.tensor(name).expect("the name was listed");
        if view.len() < 1 << 16 {
            let _ = view.to_f32();
        }
    }
    wingbeat::report::inspect(&checkpoint, true, &Options::default()).map(drop)
}

fuzz_target!(|bytes: &[u8]| count(with_file(bytes, read)));
