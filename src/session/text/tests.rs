//! Tests of sampling with a guard and a constraint, from logits that are not finite.

use super::*;
use crate::sample::Sampling;

struct Only(u32);

impl Constraint for Only {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        Ok(Allowed { ids: std::slice::from_ref(&self.0), may_end: false })
    }
    fn accept(&mut self, _: u32) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_guard_does_not_undo_a_constraint() {
    let draw = |allowed: u32, logits: &[f32]| {
        let sampling = Sampling { guard: Some(2), ..Sampling::greedy(0) };
        let mut text = Text::new(Slot::NOWHERE, TextSpec::new([], Sampler::new(sampling), Limits::new(1)));
        text.spec.constraint = Some(Box::new(Only(allowed)));
        text.stop_ids = vec![0];
        text.draw(logits)
    };
    let broken = [9.0, f32::NAN, 0.0, 3.0, f32::INFINITY];
    assert_eq!(draw(0b1000, &broken).unwrap(), Some(3));
    assert_eq!(draw(0b1100, &broken).unwrap(), Some(3));
    // None of the allowed tokens has a finite logit.
    let error = draw(0b10010, &broken).unwrap_err();
    assert!(error.to_string().contains("finite"), "{error}");
}
