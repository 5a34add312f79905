//! Measures the importance of matrix columns: reads a text with a model on the CPU, and sums the squared inputs of every matrix.

use super::importance::file_place;
use super::quality::too_short;
use super::{Session, Windows};
use crate::error::{Error, Result};
use crate::tape::{AllInputSums, InputSums, MatrixPart};
use crate::weights::{Calibration, ColumnSums};
use std::collections::BTreeMap;

impl Calibration {
    /// Reads a text and sums the squared inputs of every matrix. The model of `session` must run on the CPU, on one device. Its weights should be
    /// floats, because rounded weights change the inputs of later layers. Every window begins with an empty state. A text of some ten thousand tokens
    /// is enough. The text should have the scripts and languages for which the model will be used. `dataset` names the text in files. Calls
    /// `progress(tokens read so far, all tokens)`. The [stop flag](Session::stop_flag) ends the work between two steps.
    ///
    /// # Errors
    /// `Usage` if the model does not run on the CPU alone; `Input` if the text is too short; the errors of [`Session::score`].
    pub fn measure(
        session: &mut Session,
        text: &Windows<'_>,
        dataset: &str,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Calibration> {
        // Models for vectors, scores and classes have no logits after every token.
        let speaks = session.model().check_speaks().is_ok();
        let (n_chunks, total) = text.iter().fold((0, 0), |(n, total), window| (n + 1, total + window.len()));
        if n_chunks == 0 {
            return Err(too_short(text.tokens.len()));
        }
        let sums = AllInputSums::new(session.model().tape());
        match session.executor.input_sums() {
            Some(place) => *place = Some(sums),
            None => {
                let e = Error::usage("the importance of weights is measured on the CPU, with all layers on one device").field("device");
                return Err(e.hint("use `device=cpu`"));
            }
        }
        let mut done = 0;
        let read = text.iter().try_for_each(|window| {
            session.check_stop(done, total)?;
            let slot = session.open()?;
            let mut show = |now: usize, _: usize| progress(done + now, total);
            let read = match speaks {
                true => session.score(slot, &window, &mut |_, _| Ok(()), &mut show),
                false => session.prefill_many(&[(slot, &window)], &mut show),
            };
            session.close(slot)?;
            done += window.len();
            read
        });
        let sums = session.executor.input_sums().and_then(Option::take);
        read?;
        let model = session.model();
        let parts = model.tape().matrices.iter().flat_map(|spec| &spec.parts);
        let sums = sums.iter().flat_map(AllInputSums::matrices).flatten();
        let mut found: BTreeMap<(&str, usize), (&MatrixPart, &InputSums)> = BTreeMap::new();
        for (part, sums) in parts.zip(sums) {
            let place = file_place(model.file_places(), part);
            // Parts that are rows of one tensor have the same inputs, so the first one is enough. A stack of experts has a place for every expert,
            // even if no token has used the expert.
            let is_first = part.slice.is_none_or(|slice| slice.index == 0 || slice.is_plane);
            if is_first && (sums.rows > 0 || place.of > 1) {
                found.insert((place.tensor, place.index), (part, sums));
            }
        }
        let mut by_tensor: BTreeMap<String, ColumnSums> = BTreeMap::new();
        for ((name, _), (part, sums)) in found {
            let own = by_tensor.entry(name.to_string()).or_default();
            // An expert without tokens has no sums yet.
            own.squares.extend(part.stored_inputs().map(|i| sums.squares.get(i).map_or(0.0, |sum| *sum as f32)));
            own.counts.push(sums.rows as f32);
        }
        by_tensor.retain(|_, sums| sums.has_inputs());
        let mut found = Calibration::new(by_tensor)?;
        found.datasets = vec![dataset.to_string()];
        (found.n_chunks, found.chunk_size) = (n_chunks, u32::try_from(text.len).unwrap_or(u32::MAX));
        Ok(found)
    }
}
