//! Open devices, and their asynchronous errors such as lost devices and exhausted memory.

use super::adapter::{Adapter, COOPERATIVE_FEATURES};
use super::kernel::Kernels;
use super::stored::StoredKernels;
use crate::error::{Error, Result};
use crate::exec::environment::CHECKED;
use crate::exec::wait::{MAY_BLOCK, block_on};
use crate::tape::Caps;
use std::sync::{Arc, Mutex};

/// The first error of a device since the last [`check`](Self::check).
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Option<Error>>>);

impl Faults {
    fn keep(&self, error: Error) {
        if let Ok(mut slot) = self.0.lock() {
            slot.get_or_insert(error);
        }
    }

    /// Returns the first error since the last `check`, and forgets this error. Returns `Ok` if no error occurred. Later work on a lost
    /// device fails again.
    pub fn check(&self) -> Result<()> {
        match self.0.lock() {
            Ok(mut slot) => slot.take().map_or(Ok(()), Err),
            Err(_) => Err(Error::device("the device's error handler panicked")),
        }
    }
}

/// An open device with its capabilities and kernels.
#[derive(Clone)]
pub struct Device {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub faults: Faults,
    pub caps: Caps,
    pub is_slow: bool,
    /// `true` if shaders run without bounds checks and loop limits. Tests and `doctor` compare these shaders with the reference
    /// implementations on the CPU.
    pub trusted: bool,
    /// Compiled kernels, shared by all models on the device. Each kernel is built when it is first used.
    pub kernels: Arc<Kernels>,
}

impl Device {
    /// Opens an adapter.
    ///
    /// # Errors
    /// `Device` or `Memory` if the driver does not open the device. `Usage` if an environment variable is wrong, as in [`Adapter::caps`].
    pub async fn open_async(adapter: &Adapter, batch_invariant: bool) -> Result<Device> {
        let mut caps = adapter.caps(batch_invariant)?;
        let mut opened = Self::request(adapter, &caps).await;
        if caps.cooperative.is_some() && opened.is_err() {
            log::warn!("{} does not open with cooperative matrices, so they are not used", adapter.name);
            caps.cooperative = None;
            opened = Self::request(adapter, &caps).await;
        }
        let (device, queue) = opened?;
        Ok(Self::adopt(device, queue, caps, adapter.is_slow()))
    }

    async fn request(adapter: &Adapter, caps: &Caps) -> Result<(wgpu::Device, wgpu::Queue)> {
        let mut features = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SUBGROUP | wgpu::Features::PIPELINE_CACHE;
        let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
        if caps.cooperative.is_some() {
            features |= COOPERATIVE_FEATURES;
            // SAFETY: wgpu warns that its implementation of experimental features may have errors. One kernel uses such a feature, and
            // `selftest::settle` compares the kernel with its twin before a model uses the kernel.
            experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("wingbeat"),
            // These features are optional: only `profile` needs timestamps, and only `keep_kernels` needs the pipeline cache.
            required_features: adapter.inner.features() & features,
            experimental_features,
            required_limits: adapter.inner.limits(),
            ..Default::default()
        };
        adapter.inner.request_device(&descriptor).await.map_err(|e| {
            let text = format!("cannot open {} ({}): {e}", adapter.name, adapter.backend);
            // wgpu does not expose the kind of this error, so the text decides.
            let found = match e.to_string().contains("Not enough memory") {
                true => Error::memory(text).hint("close other programs, or use `device=cpu`"),
                false => Error::device(text).hint("update its driver, or choose another `device`"),
            };
            found.caused_by(e)
        })
    }

    /// Keeps the kernels that are compiled from now on in the file `path`, if the backend has pipeline caches. Drops the kernels that were built so
    /// far.
    pub fn keep_kernels(&mut self, path: std::path::PathBuf) {
        self.kernels = Arc::new(Kernels::new(StoredKernels::open(&self.device, path)));
    }

    /// Returns the same device with other capabilities. Capabilities choose the kernel family ([`Class`](crate::tape::Class)) and the sizes of the kernels, so
    /// that one device can run different kernels for the same tape.
    pub fn with_caps(&self, caps: Caps) -> Device {
        Device { caps, ..self.clone() }
    }

    /// Wraps a device that the caller opened from `adapter`. Uses the features and limits that the caller asked for. Replaces the device's handlers of
    /// errors and of device loss.
    ///
    /// # Errors
    /// `Usage` if an environment variable is wrong, as in [`Adapter::caps`].
    pub fn of_wgpu(adapter: wgpu::Adapter, device: wgpu::Device, queue: wgpu::Queue) -> Result<Device> {
        let adapter = Adapter::new(adapter);
        let (mut caps, features) = (adapter.caps(false)?, device.features());
        caps.cooperative = caps.cooperative.filter(|_| features.contains(COOPERATIVE_FEATURES));
        caps.subgroups &= features.contains(wgpu::Features::SUBGROUP);
        caps.max_binding = caps.max_binding.min(usize::try_from(device.limits().max_storage_buffer_binding_size).unwrap_or(usize::MAX));
        Ok(Self::adopt(device, queue, caps, adapter.is_slow()))
    }

    /// Wraps an open device. Replaces the device's handlers of errors and of device loss.
    pub fn adopt(device: wgpu::Device, queue: wgpu::Queue, caps: Caps, is_slow: bool) -> Device {
        let faults = Faults::default();
        let sink = faults.clone();
        device.on_uncaptured_error(Arc::new(move |error| sink.keep(explain(&error).caused_by(error))));
        let sink = faults.clone();
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed {
                sink.keep(lost(&message));
            }
        });
        let trusted = CHECKED.is("1").is_ok_and(|is_checked| is_checked != Some(true));
        Device { device, queue, faults, caps, is_slow, trusted, kernels: Arc::default() }
    }

    /// Calls `make`, which creates objects of the device, and returns the result of `make`. Returns an error if an object was not created. Errors of
    /// other threads that use the device at the same time do not count. A browser reports the errors of objects later, so there this function only
    /// returns earlier errors; [`checked_async`](Self::checked_async) waits.
    pub(super) fn checked<T>(&self, make: impl FnOnce() -> T) -> Result<T> {
        if MAY_BLOCK {
            return block_on(self.checked_async(make));
        }
        let made = make();
        self.faults.check().map(|()| made)
    }

    /// Does what [`checked`](Self::checked) does. In a browser, waits until errors of the created objects are reported.
    pub(super) async fn checked_async<T>(&self, make: impl FnOnce() -> T) -> Result<T> {
        // A scope belongs to the thread that opened it, so errors of other threads are not caught here. Outside a browser, the result of a scope is
        // ready at once. All scopes are closed before the first is awaited, because other tasks create objects meanwhile.
        let filters = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = make();
        let [validation, memory, internal] = scopes;
        let closed = [internal, memory, validation].map(|scope| scope.pop());
        let mut found = None;
        for scope in closed {
            found = scope.await.or(found);
        }
        found.map_or(Ok(made), |error| Err(explain(&error).caused_by(error)))
    }

    /// Blocks until all submitted work is done. In a browser, returns at once.
    pub fn wait(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    /// Blocks until this submission and all earlier submissions are done. In a browser, returns at once.
    pub fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
    }

    /// Returns whether this submission and all earlier submissions are done.
    pub(super) fn is_done(&self, submission: wgpu::SubmissionIndex) -> Result<bool> {
        let now = Some(std::time::Duration::ZERO);
        match self.device.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: now }) {
            Err(wgpu::PollError::Timeout) => self.faults.check().map(|()| false),
            polled => {
                self.faults.check()?;
                polled.map(|_| true).map_err(|e| lost(&e.to_string()))
            }
        }
    }

    fn poll(&self, until: wgpu::PollType) -> Result<()> {
        let polled = self.device.poll(until);
        self.faults.check()?;
        polled.map(|_| ()).map_err(|e| lost(&e.to_string()).caused_by(e))
    }

    /// Returns an error of kind `Memory`, with `hint`, if `bytes` exceeds the adapter's limit on the size of one binding.
    pub fn check_binding(&self, label: &str, bytes: usize, hint: &str) -> Result<()> {
        let limit = self.device.limits().max_storage_buffer_binding_size;
        if bytes as u64 <= limit {
            return Ok(());
        }
        Err(Error::memory(format!("{label} needs a GPU buffer of {bytes} bytes, but the adapter allows at most {limit} bytes")).hint(hint))
    }

    /// Returns the size of a buffer for `bytes` bytes: a multiple of 16 that is at least 32.
    pub fn buffer_bytes(bytes: usize) -> usize {
        bytes.max(32).next_multiple_of(16)
    }

    /// Creates a buffer of at least `bytes` bytes.
    ///
    /// # Errors
    /// `Memory` if the size exceeds the adapter's limit, or if the device has no room.
    pub fn buffer(&self, label: &str, bytes: usize, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer> {
        let size = Self::buffer_bytes(bytes) as u64;
        let limit = self.device.limits().max_buffer_size;
        if size > limit {
            let text = format!("{label} needs one buffer of {size} bytes, but the adapter allows {limit}");
            return Err(Error::memory(text).hint("use fewer texts at once, a smaller `chunk` or `context`, or `device=cpu`"));
        }
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false });
        self.faults.check().map_err(|e| e.at(label))?;
        Ok(buffer)
    }
}

fn explain(error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::memory("the device is out of memory")
            .hint("close other GPU programs, or choose a smaller model, fewer texts at once, a smaller `context` or `device=cpu`"),
        wgpu::Error::Validation { description, .. } => {
            Error::device(format!("the device rejected an invalid call: {description}")).hint("run `wingbeat doctor` and report its output")
        }
        wgpu::Error::Internal { description, .. } => {
            Error::device(format!("the driver failed: {description}")).hint("update the driver, or choose another `device`")
        }
    }
}

fn lost(message: &str) -> Error {
    Error::device(format!("the device was lost: {message}")).hint(
        "the driver was reset, a dispatch took too long, or the GPU was removed; use a smaller `chunk` or `device=cpu`, or update the driver",
    )
}
