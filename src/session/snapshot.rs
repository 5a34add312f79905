//! Snapshots: copies of a slot's contents in host memory. A snapshot can be saved to a file or restored to a slot.

use super::slots::{Slot, SlotContents};
use super::{Model, Session, pages};
use crate::error::{Error, Result};
use crate::exec::Excerpt;
use crate::tape::{Cache, State, StateSpec};
use sha2::{Digest, Sha256};

/// A copy of a slot's contents in host memory. [`Session::restore`] opens a slot with bit-identical contents.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Hash of the weights that the snapshot belongs to.
    pub(super) weights: String,
    /// The recurrent states, in the order of the model's tape. An entry holds the elements of one state in row-major order.
    pub(super) states: Vec<Vec<f32>>,
    /// The KV caches of the model. An entry holds the cached keys, or the cached values, of one layer: `[n_tokens, n_heads, head_size]`.
    pub(super) caches: Vec<Vec<f32>>,
    /// Logits after the last token, `[vocab]`; empty if the slot had none.
    pub(super) logits: Vec<f32>,
    pub(super) n_tokens: usize,
    /// The tokens that the slot had read; empty if unknown.
    pub(super) tokens: Vec<u32>,
}

impl Snapshot {
    /// Returns the number of tokens that the slot had read.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Returns the beginning of the SHA-256 of the recurrent states, as 12 hexadecimal digits. The digest distinguishes initial states.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        self.states.iter().for_each(|state| hash.update(bytemuck::cast_slice::<f32, u8>(state)));
        hash.finalize().iter().take(6).map(|b| format!("{b:02x}")).collect()
    }

    /// Returns the recurrent states in the order of the model's layers: each state's name, its shape, and its elements in row-major order. `model` is
    /// the model of the snapshot.
    pub fn states<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = (&'a str, &'a [usize], &'a [f32])> {
        let specs = model.tape().states.iter();
        specs.zip(&self.states).map(|(spec, values)| (spec.name.as_str(), spec.shape.as_slice(), values.as_slice()))
    }

    /// Returns the snapshot of a slot with these recurrent states, in the order and with the lengths of [`states`](Self::states). The snapshot has no
    /// logits. Its number of tokens is unknown and counts as 0.
    ///
    /// # Errors
    /// `Input` if there are too few or too many states, or a state has another length; `Model` if the model also has a KV cache.
    pub fn of_states(model: &Model, states: Vec<Vec<f32>>) -> Result<Snapshot> {
        let tape = model.tape();
        if !tape.caches.is_empty() {
            return Err(Error::model("this model has a key-value cache, which is not a part of its recurrent states"));
        }
        if states.len() != tape.states.len() {
            return Err(Error::input(format!("expected {} recurrent states, found {}", tape.states.len(), states.len())));
        }
        for (spec, values) in tape.states.iter().zip(&states) {
            if values.len() != spec.len() {
                let text = format!("expected {} numbers, found {}", spec.len(), values.len());
                return Err(Error::input(text).at(&spec.name));
            }
        }
        Ok(Snapshot { weights: model.weights_hash().into(), states, ..Snapshot::default() })
    }

    /// Checks that the snapshot belongs to the weights of `model`.
    ///
    /// # Errors
    /// `Model` if the snapshot belongs to other weights.
    pub fn check_model(&self, model: &Model) -> Result<()> {
        match self.weights == model.weights_hash() {
            true => Ok(()),
            false => Err(Error::model("the state was made with the weights of another model")),
        }
    }

    /// Returns whether the snapshot has logits, so that sampling needs no further token.
    pub fn has_logits(&self) -> bool {
        !self.logits.is_empty()
    }

    /// Returns the bytes of host memory that the snapshot takes.
    pub fn n_bytes(&self) -> u64 {
        let floats = self.states.iter().chain(&self.caches).map(Vec::len).sum::<usize>() + self.logits.len();
        (4 * (floats + self.tokens.len())) as u64
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("n_tokens", &self.n_tokens).field("n_bytes", &self.n_bytes()).finish_non_exhaustive()
    }
}

/// An unfinished copy of a slot's contents to host memory. Dropping this value cancels the copy.
pub struct Copying<'s> {
    session: &'s mut Session,
    /// The snapshot without states and caches.
    snapshot: Snapshot,
}

impl Copying<'_> {
    /// Returns whether [`finish`](Self::finish) would return without blocking.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.session.is_ready()
    }

    /// Waits until [`finish`](Self::finish) would not block. In a browser, the future awaits the device. Elsewhere, polling the future blocks the
    /// thread.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub async fn ready(&mut self) -> Result<()> {
        self.session.ready().await
    }

    /// Blocks until the copy is complete, and returns the snapshot.
    ///
    /// # Errors
    /// `Device` if the device failed. In a browser, returns the same error if the device is not done yet, so await [`ready`](Self::ready)
    /// first.
    pub fn finish(mut self) -> Result<Snapshot> {
        self.session.check_failure()?;
        let mut states = self.session.executor.finish_read()?;
        let caches = states.split_off(self.session.model.tape().states.len());
        Ok(Snapshot { states, caches, ..std::mem::take(&mut self.snapshot) })
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.session.executor.cancel();
    }
}

impl Session {
    /// Copies the contents of a slot to host memory, and blocks until the copy is complete. The slot does not change.
    ///
    /// # Errors
    /// The errors of [`begin_snapshot`](Self::begin_snapshot) and [`Copying::finish`].
    pub fn snapshot(&mut self, slot: Slot) -> Result<Snapshot> {
        self.begin_snapshot(slot)?.finish()
    }

    /// Copies the contents of a slot to host memory as [`snapshot`](Self::snapshot) does, and awaits the device. Outside a browser, polling the
    /// future blocks.
    ///
    /// # Errors
    /// The errors of [`snapshot`](Self::snapshot).
    pub(crate) async fn snapshot_awaited(&mut self, slot: Slot) -> Result<Snapshot> {
        let mut copying = self.begin_snapshot(slot)?;
        copying.ready().await?;
        copying.finish()
    }

    /// Begins to copy the contents of a slot to host memory. The slot does not change.
    ///
    /// # Errors
    /// `Input` if the slot was closed or belongs to another session; `Memory` if there is too little memory for the copy.
    pub fn begin_snapshot(&mut self, slot: Slot) -> Result<Copying<'_>> {
        let SlotContents { page, logits, n_tokens, blocks, tokens } = self.contents(slot)?.clone();
        let tape = self.model().tape().clone();
        let page_of = |spec: &StateSpec| if spec.halves { self.pages.shift(page) } else { page };
        let states = tape.states.iter().enumerate().map(|(i, spec)| Excerpt::State(State(i), page_of(spec)));
        let caches = (0..tape.caches.len()).map(|i| Excerpt::Cache(Cache(i), &blocks, n_tokens));
        let excerpts: Vec<Excerpt<'_>> = states.chain(caches).collect();
        self.executor.begin_read(&excerpts)?;
        self.failure = None;
        let weights = self.model().weights_hash().into();
        let snapshot = Snapshot { weights, states: Vec::new(), caches: Vec::new(), logits, n_tokens, tokens };
        Ok(Copying { session: self, snapshot })
    }

    /// Returns the bytes of host memory that a snapshot of a slot would take, or 0 if the slot is closed.
    pub(crate) fn snapshot_bytes(&self, slot: Slot) -> u64 {
        let Ok(SlotContents { logits, n_tokens, tokens, .. }) = self.contents(slot) else { return 0 };
        let tape = self.model().tape();
        let states: usize = tape.states.iter().map(|spec| spec.shape.iter().product::<usize>()).sum();
        let per_token: usize = tape.caches.iter().map(|spec| spec.width()).sum();
        (4 * (states + per_token * n_tokens + logits.len() + tokens.len())) as u64
    }

    /// Opens a slot with the contents of a snapshot.
    ///
    /// # Errors
    /// `Model` if the snapshot belongs to other weights; `Input` if all slots are in use, or if the snapshot has more tokens than the context
    /// holds.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<Slot> {
        let Snapshot { states, caches, logits, n_tokens, tokens, .. } = snapshot;
        snapshot.check_model(self.model())?;
        if let Some(context) = self.model().context().filter(|context| n_tokens > context) {
            return Err(Error::input(format!("this state has read {n_tokens} tokens, but the context holds {context} tokens")));
        }
        let slot = self.open()?;
        self.pages.release(pages::ZERO);
        let page = self.pages.take();
        let mut blocks = Vec::new();
        if !caches.is_empty() {
            self.blocks.own(&mut blocks, 0, *n_tokens);
        }
        let written = self.write(page, &blocks, states, caches);
        let tokens = if caches.is_empty() || tokens.len() != *n_tokens { Vec::new() } else { tokens.clone() };
        *self.slots.get_mut(slot)? = SlotContents { page, logits: logits.clone(), n_tokens: *n_tokens, blocks, tokens };
        if let Err(e) = written {
            self.close(slot)?;
            return Err(e);
        }
        Ok(slot)
    }

    fn write(&mut self, page: usize, blocks: &[u32], states: &[Vec<f32>], caches: &[Vec<f32>]) -> Result<()> {
        let tape = self.model().tape().clone();
        for (i, (spec, values)) in tape.states.iter().zip(states).enumerate() {
            let at = if spec.halves { self.pages.shift(page) } else { page };
            self.executor.write_state(State(i), at, values)?;
        }
        caches.iter().enumerate().try_for_each(|(i, values)| self.executor.write_cache(Cache(i), blocks, values))
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::session::{Idle, Model, ModelSource, Options};

    #[test]
    fn a_restored_slot_continues_bit_identically() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let mut session = Session::with_idle(&model, 1, Idle { slots: 1, ..Idle::default() }).unwrap();
        let slot = session.open().unwrap();
        assert!(!session.snapshot(slot).unwrap().has_logits());
        session.prefill(slot, &[5, 6, 7]).unwrap();
        let snapshot = session.snapshot(slot).unwrap();
        assert!(snapshot.has_logits() && snapshot.n_tokens() == 3 && snapshot.n_bytes() > 4 * 2048, "{snapshot:?}");
        assert_eq!(session.snapshot_bytes(slot), snapshot.n_bytes());
        let back = session.restore(&snapshot).unwrap();
        assert_eq!(session.logits(slot).unwrap(), session.logits(back).unwrap());
        let want = session.decode(slot, 8).unwrap().to_vec();
        assert_eq!(session.decode(back, 8).unwrap(), want);
        assert_eq!(session.restore(&snapshot).unwrap_err().message, "no slot is free: 2 of 2 slots are in use");
        let states: Vec<_> = snapshot.states(&model).map(|(_, _, values)| values.to_vec()).collect();
        assert_eq!(snapshot.states(&model).map(|(name, _, _)| name).next(), Some("blocks.0.att.shift"));
        assert_eq!(Snapshot::of_states(&model, states[1..].to_vec()).unwrap_err().message, "expected 18 recurrent states, found 17");
        let of_states = Snapshot::of_states(&model, states).unwrap();
        session.close(back).unwrap();
        let third = session.restore(&of_states).unwrap();
        assert_eq!(session.decode(third, 8).unwrap(), want);
        let other = Snapshot { weights: "x".into(), ..snapshot };
        assert!(session.restore(&other).unwrap_err().message.contains("weights of another model"));
    }
}
