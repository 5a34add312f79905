//! Runs a model on a GPU device that the program has opened, for example to draw with it. `cargo run --release --example own_gpu`

use std::sync::Arc;
use wingbeat::{Engine, EngineOptions, Error, GpuDevice, ModelSource, Options, Request, Result};

fn main() -> Result<()> {
    // Keep the instance until no thread of the driver runs: dropping the last instance unloads the driver.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default())).map_err(|e| Error::device(e.to_string()))?;
    let limits = adapter.limits();
    let descriptor = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).map_err(|e| Error::device(e.to_string()))?;
    let gpu = Arc::new(GpuDevice::of_wgpu(adapter, device, queue)?);
    let model = Options::new().gpu(gpu).open(ModelSource::Embedded)?;
    let engine = Engine::start(&model, EngineOptions::default())?;
    println!("{}: {}", model.device().name, engine.run(Request::text("Once upon a time").max_tokens(20).seed(1))?.text);
    Ok(())
}
