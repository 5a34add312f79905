//! The GPUs that [`predict`](super) knows, with the numbers of their data sheets and a few estimates.

use crate::error::{Error, Result};

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

const US: f64 = 1e-6;

/// All known GPUs.
pub static GPUS: &[Gpu] = &[
    Gpu {
        name: "4090",
        title: "NVIDIA GeForce RTX 4090",
        is_integrated: false,
        gb_s: 1008.0,
        tflop_s: 82.6,
        cooperative_tflop_s: Some(38.0),
        cores: 128,
        dispatch: 2.5 * US,
        memory: 0.28 * US,
        cache: 0.13 * US,
    },
    Gpu {
        name: "3090",
        title: "NVIDIA GeForce RTX 3090",
        is_integrated: false,
        gb_s: 936.0,
        tflop_s: 35.6,
        cooperative_tflop_s: Some(20.0),
        cores: 82,
        dispatch: 2.5 * US,
        memory: 0.4 * US,
        cache: 0.2 * US,
    },
    Gpu {
        name: "3060",
        title: "NVIDIA GeForce RTX 3060",
        is_integrated: false,
        gb_s: 360.0,
        tflop_s: 12.7,
        cooperative_tflop_s: Some(8.0),
        cores: 28,
        dispatch: 2.5 * US,
        memory: 0.4 * US,
        cache: 0.2 * US,
    },
    Gpu {
        name: "h100",
        title: "NVIDIA H100 SXM",
        is_integrated: false,
        gb_s: 3350.0,
        tflop_s: 66.9,
        cooperative_tflop_s: Some(58.0),
        cores: 132,
        dispatch: 3.0 * US,
        memory: 0.5 * US,
        cache: 0.2 * US,
    },
    Gpu {
        name: "h200",
        title: "NVIDIA H200",
        is_integrated: false,
        gb_s: 4800.0,
        tflop_s: 66.9,
        cooperative_tflop_s: Some(58.0),
        cores: 132,
        dispatch: 3.0 * US,
        memory: 0.5 * US,
        cache: 0.2 * US,
    },
    Gpu {
        name: "7900xtx",
        title: "AMD Radeon RX 7900 XTX",
        is_integrated: false,
        gb_s: 960.0,
        tflop_s: 30.7,
        cooperative_tflop_s: Some(25.0),
        cores: 96,
        dispatch: 2.0 * US,
        memory: 0.3 * US,
        cache: 0.12 * US,
    },
    Gpu {
        name: "780m",
        title: "AMD Radeon 780M (DDR5-5600)",
        is_integrated: true,
        gb_s: 90.0,
        tflop_s: 4.1,
        cooperative_tflop_s: Some(3.0),
        cores: 12,
        dispatch: 4.5 * US,
        memory: 0.35 * US,
        cache: 0.12 * US,
    },
    Gpu {
        name: "m3",
        title: "Apple M3",
        is_integrated: true,
        gb_s: 100.0,
        tflop_s: 3.5,
        cooperative_tflop_s: None,
        cores: 10,
        dispatch: 4.0 * US,
        memory: 0.35 * US,
        cache: 0.15 * US,
    },
];

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
