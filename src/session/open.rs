//! Opens models: setters of [`Options`] that can be chained, and the progress of loading.

use super::options::{ModelSource, Options, Output};
use super::{Model, PartOn};
use crate::error::Result;
use crate::exec::gpu::{self, Backend};
use crate::exec::strategy::StrategyChoice;
use crate::exec::{DeviceChoice, FloatChoice, QuantPlan};
use crate::quant::Activations;
use crate::weights::Calibration;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

impl Options {
    /// Returns the default options, the same as `Options::default()`.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the device that runs all layers.
    pub fn device(self, device: DeviceChoice) -> Options {
        Options { device, ..self }
    }

    /// Sets the graphics API through which GPUs are used.
    pub fn backend(self, backend: Backend) -> Options {
        Options { backend, ..self }
    }

    /// Splits the layers into groups and sets a device for each. Replaces `device`.
    pub fn parts(self, parts: impl Into<Vec<PartOn>>) -> Options {
        Options { parts: parts.into(), ..self }
    }

    /// Sets the device and the weight format of every layer. Replaces `device` and `dtype`.
    pub fn strategy(self, strategy: StrategyChoice) -> Options {
        Options { strategy: Some(strategy), ..self }
    }

    /// Sets the float format of matrices that are not quantised.
    pub fn dtype(self, dtype: FloatChoice) -> Options {
        Options { dtype, ..self }
    }

    /// Sets the formats to which matrices are quantised: `quant("i8".parse()?)`.
    pub fn quant(self, plan: QuantPlan) -> Options {
        Options { quant: Some(plan), ..self }
    }

    /// Sets whether products round activations to 8 bits where weights are quantised.
    pub fn activations(self, activations: Activations) -> Options {
        Options { activations, ..self }
    }

    /// Sets the importance of matrix columns, which the encoders of quantised formats use.
    pub fn calibration(self, calibration: impl Into<Arc<Calibration>>) -> Options {
        Options { calibration: Some(calibration.into()), ..self }
    }

    /// Sets the vocabulary file.
    pub fn vocab(self, path: impl Into<PathBuf>) -> Options {
        Options { vocab: Some(path.into()), ..self }
    }

    /// Sets the largest number of prompt tokens per step.
    pub fn chunk(self, n: usize) -> Options {
        Options { chunk: Some(n), ..self }
    }

    /// Sets the context: how many tokens a slot of a model with attention can read.
    pub fn context(self, n: usize) -> Options {
        Options { context: Some(n), ..self }
    }

    /// Sets whether results are independent of the batch.
    pub fn deterministic(self, deterministic: bool) -> Options {
        Options { deterministic, ..self }
    }

    /// Sets the folder for compiled kernels and measurements.
    pub fn cache(self, folder: impl Into<PathBuf>) -> Options {
        Options { cache: Some(folder.into()), ..self }
    }

    /// Uses a GPU that the caller has opened. Replaces `device` and `backend`.
    pub fn gpu(self, gpu: Arc<gpu::Device>) -> Options {
        Options { gpu: Some(gpu), ..self }
    }

    /// Sets what a step returns: logits, or hidden states for vectors.
    pub fn output(self, output: Output) -> Options {
        Options { output, ..self }
    }

    /// Sets a callback for the progress of loading: `on_load(bytes of weights loaded so far, total bytes)`.
    pub fn progress(self, on_load: impl FnMut(u64, u64) + Send + 'static) -> Options {
        Options { progress: Some(Arc::new(Mutex::new(on_load))), ..self }
    }

    /// Sets a callback for the kernels that a browser compiles after the weights are loaded: `on_kernel(kernels done, all kernels)`.
    pub fn kernel_progress(self, on_kernel: impl FnMut(u64, u64) + Send + 'static) -> Options {
        Options { kernel_progress: Some(Arc::new(Mutex::new(on_kernel))), ..self }
    }

    /// Loads a model with these options. Blocks until the model is loaded.
    ///
    /// # Errors
    /// The errors of [`Model::load_async`].
    pub fn open(self, source: impl Into<ModelSource>) -> Result<Model> {
        Model::load(&source.into(), &self, &mut |done, total| {
            if let Some(on_load) = &self.progress {
                (on_load.lock().unwrap_or_else(std::sync::PoisonError::into_inner))(done, total);
            }
        })
    }
}

impl From<&str> for ModelSource {
    fn from(path: &str) -> ModelSource {
        ModelSource::Path(path.into())
    }
}

impl From<String> for ModelSource {
    fn from(path: String) -> ModelSource {
        ModelSource::Path(path.into())
    }
}

impl From<&Path> for ModelSource {
    fn from(path: &Path) -> ModelSource {
        ModelSource::Path(path.into())
    }
}

impl From<PathBuf> for ModelSource {
    fn from(path: PathBuf) -> ModelSource {
        ModelSource::Path(path)
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;

    #[test]
    fn progress_ends_with_all_bytes() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = heard.clone();
        let options = Options::new().device(DeviceChoice::Cpu).progress(move |done, total| ear.lock().unwrap().push((done, total)));
        let model = options.clone().quant("i8".parse().unwrap()).open(ModelSource::Embedded).unwrap();
        assert!(model.bits_per_weight() < 16.0);
        let heard = heard.lock().unwrap();
        assert!(heard.last().is_some_and(|(done, total)| done == total && *total > 0), "{heard:?}");
        assert!(options.open("no such file").is_err());
    }
}
