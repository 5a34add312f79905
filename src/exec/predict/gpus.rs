//! The GPUs that [`predict`](super) knows, with the numbers of their data sheets and a few estimates.

use crate::error::{Error, Result};
use std::sync::LazyLock;

/// The speed of a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Gpu {
    /// The name on the command line.
    pub name: &'static str,
    /// The product's name.
    pub title: &'static str,
    /// `true` if the GPU is part of the processor and uses the memory of the host.
    pub is_integrated: bool,
    /// The memory bandwidth in GB/s (data sheet).
    pub gb_s: f64,
    /// The rate of f32 operations in TFLOP/s (data sheet), without AMD's dual issue.
    pub tflop_s: f64,
    /// The rate in TFLOP/s that the kernel for cooperative matrices reaches (estimate). `None` if wgpu offers no cooperative matrices on this GPU.
    pub cooperative_tflop_s: Option<f64>,
    /// The number of cores: SMs (NVIDIA), compute units (AMD), GPU cores (Apple).
    pub cores: usize,
    /// The time from the end of a dispatch to the start of the next dispatch, in seconds (estimate).
    pub dispatch: f64,
    /// The time that a load from memory takes, in seconds (estimate).
    pub memory: f64,
    /// The time that a load from the second-level cache takes, in seconds (estimate).
    pub cache: f64,
}

/// The table of known GPUs: name, title, GB/s, TFLOP/s, TFLOP/s of cooperative matrices (0: none), cores, and the times of a dispatch, of a load
/// from memory and of a load from the cache in microseconds. After the title, `*` marks a GPU that uses the memory of the host.
const TABLE: &str = "\
4090 | NVIDIA GeForce RTX 4090 | 1008.0 82.6 38.0 128 2.5 0.28 0.13
3090 | NVIDIA GeForce RTX 3090 | 936.0 35.6 20.0 82 2.5 0.4 0.2
3060 | NVIDIA GeForce RTX 3060 | 360.0 12.7 8.0 28 2.5 0.4 0.2
h100 | NVIDIA H100 SXM | 3350.0 66.9 58.0 132 3.0 0.5 0.2
h200 | NVIDIA H200 | 4800.0 66.9 58.0 132 3.0 0.5 0.2
7900xtx | AMD Radeon RX 7900 XTX | 960.0 30.7 25.0 96 2.0 0.3 0.12
780m | AMD Radeon 780M (DDR5-5600) * | 90.0 4.1 3.0 12 4.5 0.35 0.12
m3 | Apple M3 * | 100.0 3.5 0 10 4.0 0.35 0.15";

/// All known GPUs.
pub static GPUS: LazyLock<Vec<Gpu>> = LazyLock::new(|| TABLE.lines().map(gpu).collect());

/// Reads a line of [`TABLE`].
fn gpu(line: &'static str) -> Gpu {
    let [name, title, numbers] = line.splitn(3, " | ").collect::<Vec<_>>().try_into().expect("a line has three columns");
    let numbers: Vec<f64> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
    let [gb_s, tflop_s, cooperative, cores, dispatch, memory, cache] = numbers.try_into().expect("a line has seven numbers");
    Gpu {
        name,
        title: title.trim_end_matches(" *"),
        is_integrated: title.ends_with('*'),
        gb_s,
        tflop_s,
        cooperative_tflop_s: Some(cooperative).filter(|&rate| rate > 0.0),
        cores: cores as usize,
        dispatch: dispatch * 1e-6,
        memory: memory * 1e-6,
        cache: cache * 1e-6,
    }
}

/// Finds a GPU by its name, in upper or lower case. Spaces and hyphens are ignored.
///
/// # Errors
/// `Usage` if the name is unknown.
pub fn find(name: &str) -> Result<&'static Gpu> {
    let wanted = name.to_lowercase().replace([' ', '-'], "");
    GPUS.iter().find(|gpu| gpu.name == wanted).ok_or_else(|| {
        let known: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
        Error::usage(format!("unknown GPU {name:?}, expected one of {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_found_by_its_name() {
        assert_eq!(find("7900 XTX").unwrap().cores, 96);
        assert!(find("voodoo").unwrap_err().to_string().contains("4090"));
    }
}
