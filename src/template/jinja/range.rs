//! The function `range` of templates.

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Error, ErrorKind, Value};
use std::sync::Arc;

/// A lazy range of numbers.
#[derive(Debug)]
pub struct Range {
    start: i64,
    step: i64,
    len: usize,
}

impl Range {
    /// The maximum number of numbers in a range.
    const MAX: usize = 100_000;

    /// Returns a range like Python's `range`. Fails if the step is 0 or the range is too long.
    pub fn value(lower: i64, upper: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
        let (start, stop, step) = (if upper.is_some() { lower } else { 0 }, upper.unwrap_or(lower), step.unwrap_or(1));
        if step == 0 {
            return Err(Error::new(ErrorKind::InvalidOperation, "range: the step must not be 0"));
        }
        let span = if step > 0 { i128::from(stop) - i128::from(start) } else { i128::from(start) - i128::from(stop) };
        let step_size = i128::from(step.unsigned_abs());
        let len = usize::try_from((span.max(0) + step_size - 1) / step_size).unwrap_or(usize::MAX);
        if len > Self::MAX {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("range: expected at most {} numbers, found {len}", Self::MAX)));
        }
        Ok(Value::from_object(Range { start, step, len }))
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let (start, step) = (self.start, self.step);
        Enumerator::Iter(Box::new((0..self.len as i64).map(move |i| Value::from(start + step * i))))
    }
}
