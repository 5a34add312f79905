//! Compiles the kernels of a model's first steps. Threads do this while the weights are read. A browser has no threads, so there it happens after the
//! weights are read.
//!
//! Drivers for GPUs compile a kernel when its pipeline is created. Software adapters compile a kernel when the kernel first runs, so this module does
//! nothing for software adapters.

use super::compose::Recipe;
use super::device::Device;
use super::draws::DrawSizes;
use super::kernel::n_threads;
use crate::error::Result;
use crate::exec::wait::MAY_BLOCK;
use crate::tape::{Class, Lowering, Section, TOKENS_PER_BLOCK};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The numbers of tokens of the first steps, in the order in which a program is likely to need them: a short prompt, a decoded token, and a
/// long prompt.
const STEPS: [usize; 3] = [32, 1, 256];

type Queue = Mutex<VecDeque<Recipe>>;

/// The threads that compile kernels. When the value is dropped, each thread finishes the kernel that it compiles and stops.
pub struct Early {
    left: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Early {
    /// Starts to compile the kernels that the section needs for its first steps. Starts no threads for software adapters, nor for
    /// drivers that allow only one thread at a time.
    pub fn begin(device: &Arc<Device>, section: &Section) -> Early {
        let recipes = match device.caps.class {
            Class::Groups if MAY_BLOCK && n_threads(device) > 1 => recipes(device, section),
            _ => Vec::new(),
        };
        let n = n_threads(device).min(recipes.len());
        let left: Arc<Queue> = Arc::new(Mutex::new(recipes.into()));
        let work = |_| {
            let (device, left) = (device.clone(), left.clone());
            std::thread::Builder::new().name("kernels".into()).spawn(move || device.kernels.build_next(&device, &left))
        };
        let threads = (0..n).map(work).filter_map(|thread| thread.ok()).collect();
        Early { left, threads }
    }
}

/// In a browser, compiles the kernels that the section needs for its first steps, and awaits each kernel. So the first request does not wait for
/// kernels. Elsewhere, does nothing. Calls `progress(kernels done, all kernels)`.
///
/// # Errors
/// `Device` if the browser refuses a kernel.
pub async fn build(device: &Device, section: &Section, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
    match MAY_BLOCK {
        true => Ok(()),
        false => device.kernels.build_awaited(device, &recipes(device, section), progress).await,
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        if let Ok(mut left) = self.left.lock() {
            left.clear();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the recipes of the kernels that steps of [`STEPS`] tokens need, each once.
fn recipes(device: &Device, section: &Section) -> Vec<Recipe> {
    let (tape, mut known, mut found) = (&section.tape, HashSet::new(), Vec::new());
    let mut add = |recipe: Recipe| {
        if known.insert(recipe.clone()) {
            found.push(recipe);
        }
    };
    let context = if tape.caches.is_empty() { 0 } else { TOKENS_PER_BLOCK };
    for tokens in STEPS {
        let cx = Lowering { tape, caps: &device.caps, tokens, runs: 1, outputs: 1, capacity: tokens, context };
        section.words().flat_map(|word| word.lower(&cx)).for_each(|dispatch| add(Recipe::from(&dispatch)));
        if let Some(logits) = tape.logits.filter(|_| section.is_last()) {
            let draws = DrawSizes::of(tape.var_spec(logits), 1).dispatches();
            draws.iter().for_each(|dispatch| add(Recipe::from(dispatch)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Caps, MatrixPart, Rows, Tape};

    /// Loads two layers with the same product. The steps of one, 32 and 256 tokens use three different kernels for this product.
    #[test]
    fn each_kernel_of_the_first_steps_is_compiled_once() {
        let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
        let device = Arc::new(Device::adopt(device, queue, Caps::plain(Class::Groups, 1 << 20), false));
        let mut tape = Tape::new();
        let (x, y) = (tape.var("x", Rows::Tokens, &[64]), tape.var("y", Rows::Tokens, &[64]));
        for name in ["a", "b"] {
            tape.linear_add(MatrixPart::new(name, 64, 64), x, y);
        }
        let section = Section::from(Arc::new(tape));
        let mut early = Early::begin(&device, &section);
        early.threads.drain(..).for_each(|thread| thread.join().unwrap());
        let expected = recipes(&device, &section);
        assert_eq!((expected.len(), device.kernels.n_built()), (3, 3), "{expected:?}");
    }
}
