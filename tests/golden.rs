//! The official logits of the tiny trained model, on every device that is here.

use crate::support::{devices, golden, nmse, options, tiny};
use std::ops::ControlFlow;
use wingbeat::sample::Sampling;
use wingbeat::session::{Request, Session};

#[test]
fn logits_are_the_official_ones_and_so_is_the_greedy_text() {
    let golden = golden();
    for device in devices() {
        let model = tiny(&options(device));
        let n_vocab = model.facts().n_vocab;
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        let mut logits = Vec::new();
        let mut each = |_: usize, row: &[f32]| {
            logits.extend_from_slice(row);
            Ok(())
        };
        session.score(slot, &golden.tokens, &mut each, &mut |_, _| ()).unwrap();
        assert_eq!(logits.len(), golden.tokens.len() * n_vocab);
        let error = nmse(&logits, &golden.logits);
        eprintln!("{device}: {error:.2e}");
        assert!(error <= 1e-7, "{device}: error {error:.2e}");
        session.close(slot).unwrap();

        let request = Request { stop_ids: vec![], ..Request::new(golden.greedy.len()) };
        let made = session.generate(golden.tokens.as_slice(), &Sampling::greedy(0), &request, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(made.tokens, golden.greedy, "{device}");
        eprintln!("{:?}", made.text);
    }
}
