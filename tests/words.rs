//! Every word's kernels against its twin, in every format, in both families of kernels, trusted and checked.

use crate::support::{adapter, caps, nmse};
use std::sync::Arc;
use wingbeat::exec::gpu::Device;
use wingbeat::exec::selftest;
use wingbeat::quant::FORMATS;
use wingbeat::tape::{Caps, Class};
use wingbeat::words::WORDS;

fn all_words(caps: impl Fn(Caps) -> Caps, trusted: bool) {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let mut device = base.with_caps(caps(base.caps.clone()));
    device.trusted = trusted;
    let device = Arc::new(device);
    let mut wrong = Vec::new();
    for word in WORDS {
        let cases = (word.cases)();
        assert!(!cases.is_empty(), "{} has no cases", word.name);
        for format in FORMATS {
            for case in (word.cases)() {
                let outcome = selftest::run(case, *format, &device).unwrap();
                if !outcome.is_right() {
                    wrong.push(format!("{}: {:.2e}", outcome.case, outcome.error));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn lanes_equal_their_twins() {
    all_words(|c| caps(c, Class::Lanes), true);
}

#[test]
fn groups_equal_their_twins() {
    all_words(|c| caps(c, Class::Groups), true);
}

#[test]
fn batch_invariant_kernels_equal_their_twins() {
    all_words(|c| Caps { batch_invariant: true, ..caps(c, Class::Groups) }, true);
}

#[test]
fn checked_shaders_equal_their_twins() {
    all_words(|c| caps(c, Class::Lanes), false);
}

#[test]
fn split_matrices_equal_their_twins() {
    all_words(|c| Caps { max_binding: 4096, ..caps(c, Class::Groups) }, true);
    all_words(|c| Caps { max_binding: 4096, ..caps(c, Class::Lanes) }, true);
}

#[test]
fn the_judge_objects_to_wrong_numbers() {
    let right = [1.0, -2.0, 3.0, 0.5];
    assert_eq!(nmse(&right, &right), 0.0);
    for wrong in [[1.0, -2.0, 3.0, 0.6], [1.0, -2.0, 3.0, f32::NAN], [0.0; 4], [-1.0, 2.0, -3.0, -0.5], [1.0, -2.0, f32::INFINITY, 0.5]] {
        assert!(nmse(&wrong, &right) > 1e-4, "{wrong:?}");
    }
    assert_eq!(nmse(&right[..3], &right), f64::INFINITY);
    assert_eq!(nmse(&[1e-30], &[0.0]), f64::INFINITY);
}
