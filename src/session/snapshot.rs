//! What a slot remembers, copied to host memory: kept beside the device, written to a file, brought back into a slot.

use super::slots::{Slot, SlotContents};
use super::{Model, Session, pages};
use crate::error::{Error, Result};
use crate::exec::Excerpt;
use crate::tape::{Cache, State, StateSpec};

/// A slot's memory on the host. [`Session::restore`] opens a slot that goes on from it, to the bit.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Identity of the weights that it belongs to.
    pub(super) weights: String,
    /// One for each state of the tape, in its shape.
    pub(super) states: Vec<Vec<f32>>,
    /// One for each cache of the tape, `[n_tokens, n_heads, head_size]`.
    pub(super) caches: Vec<Vec<f32>>,
    /// `[vocab]`, after the last token; empty if the slot had none.
    pub(super) logits: Vec<f32>,
    pub(super) n_tokens: usize,
    /// The tokens that were read; empty where they are not known.
    pub(super) tokens: Vec<u32>,
}

impl Snapshot {
    /// Tokens that were read.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Returns an error of kind `Model` unless the snapshot is of these weights.
    pub fn check_model(&self, model: &Model) -> Result<()> {
        match self.weights == model.weights_hash() {
            true => Ok(()),
            false => Err(Error::model("expected a snapshot of this model, found one of other weights")),
        }
    }

    /// Whether the next token can be drawn without reading one.
    pub fn has_logits(&self) -> bool {
        !self.logits.is_empty()
    }

    /// Bytes of host memory that it takes.
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

/// A slot's memory on its way to the host. Dropping it drops the copy.
pub struct Copying<'s> {
    session: &'s mut Session,
    /// But for the states and caches.
    snapshot: Snapshot,
}

impl Copying<'_> {
    /// Returns whether [`finish`](Self::finish) would not block.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.session.is_ready()
    }

    /// Waits until [`finish`](Self::finish) does not block: in a browser by awaiting, elsewhere by blocking.
    pub async fn ready(&mut self) -> Result<()> {
        self.session.ready().await
    }

    /// Blocks until the copy is there.
    ///
    /// # Errors
    /// `Device` if the device failed. In a browser also if it is not done: await [`ready`](Self::ready) first.
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
    /// Copies what a slot remembers to host memory. The slot stays as it is.
    pub fn snapshot(&mut self, slot: Slot) -> Result<Snapshot> {
        self.begin_snapshot(slot)?.finish()
    }

    /// Begins to copy what a slot remembers to host memory.
    ///
    /// # Errors
    /// `Input` if the slot was closed or belongs to another session; `Memory` if there is no room for the copy.
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

    /// Opens a slot that goes on from a snapshot.
    ///
    /// # Errors
    /// `Model` where the snapshot is of other weights; `Input` where all slots are in use, or its tokens do not fit the context.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<Slot> {
        let Snapshot { states, caches, logits, n_tokens, tokens, .. } = snapshot;
        snapshot.check_model(self.model())?;
        if let Some(context) = self.model().context().filter(|context| n_tokens > context) {
            return Err(Error::input(format!("this state has read {n_tokens} tokens, more than the context of {context}")));
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
    fn a_restored_slot_goes_on_to_the_bit() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let mut session = Session::with_idle(&model, 1, Idle { slots: 1, tokens: 0 }).unwrap();
        let slot = session.open().unwrap();
        assert!(!session.snapshot(slot).unwrap().has_logits());
        session.prefill(slot, &[5, 6, 7]).unwrap();
        let snapshot = session.snapshot(slot).unwrap();
        assert!(snapshot.has_logits() && snapshot.n_tokens() == 3 && snapshot.n_bytes() > 4 * 2048, "{snapshot:?}");
        let back = session.restore(&snapshot).unwrap();
        assert_eq!(session.logits(slot).unwrap(), session.logits(back).unwrap());
        let want = session.decode(slot, 8).unwrap().to_vec();
        assert_eq!(session.decode(back, 8).unwrap(), want);
        assert_eq!(session.restore(&snapshot).unwrap_err().message, "all 2 slots are in use");
        let other = Snapshot { weights: "x".into(), ..snapshot };
        assert!(session.restore(&other).unwrap_err().message.contains("other weights"));
    }
}
