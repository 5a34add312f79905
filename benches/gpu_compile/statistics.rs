//! Computes a kernel's numbers in a table from the driver's report about the kernel.

use super::driver::Compiled;
use std::collections::HashMap;
use std::ops::Range;

/// The numbers of a kernel in a table. A number that the driver does not report is 0.
pub struct Statistics {
    /// Vector registers per lane.
    pub registers: u64,
    /// The largest number of subgroups on a SIMD unit (AMD) or of warps on an SM (NVIDIA), or of lanes on a core (Apple).
    pub occupancy: u64,
    /// Workgroup memory in bytes.
    pub workgroup_memory: u64,
    /// Machine code in bytes.
    pub code: u64,
    /// The compiler's estimate of the cycles that a subgroup costs.
    pub cycles: u64,
    /// Spilled registers and bytes of scratch memory.
    pub spilled: u64,
    /// One number for each innermost loop with loads: the largest number of loads that are under way at once. AMD only.
    pub loads_in_flight: Vec<u64>,
}

impl Statistics {
    /// Chooses the numbers by their names in RADV, NVK and Honeykrisp.
    pub fn new(compiled: &Compiled) -> Statistics {
        let sum = |names: &[&str]| names.iter().filter_map(|name| compiled.statistics.get(*name)).sum();
        Statistics {
            registers: sum(&["VGPRs", "Number of GPRs", "GPRs"]),
            occupancy: sum(&["Subgroups per SIMD", "Max warps/SM", "Threads"]),
            workgroup_memory: sum(&["LDS size", "Shared memory size", "Workgroup memory"]),
            code: sum(&["Code size", "Code Size"]),
            cycles: sum(&["Inverse Throughput", "Static cycle count"]),
            loads_in_flight: loads_in_flight(&compiled.assembly),
            spilled: sum(&["Spilled VGPRs", "Spilled SGPRs", "Spills to memory", "Spills", "Fills", "Scratch size", "Scratch"]),
        }
    }
}

/// Returns, for each innermost loop of AMD's machine code, the largest number of loads that are under way at once. Loops without loads are left out.
///
/// A loop is the text from a label to a branch back to this label.
fn loads_in_flight(assembly: &str) -> Vec<u64> {
    let lines: Vec<&str> = assembly.lines().map(|line| line.split(';').next().unwrap_or("").trim()).collect();
    let labels: HashMap<&str, usize> = lines.iter().enumerate().filter_map(|(at, line)| Some((line.strip_suffix(':')?, at))).collect();
    let back_to = |(end, line): (usize, &&str)| {
        let (instruction, target) = line.split_once(char::is_whitespace)?;
        let is_branch = instruction.starts_with("s_branch") || instruction.starts_with("s_cbranch");
        let start = *is_branch.then(|| labels.get(target.trim()))??;
        (start < end).then_some(start..end)
    };
    let loops: Vec<Range<usize>> = lines.iter().enumerate().filter_map(back_to).collect();
    let is_innermost =
        |outer: &&Range<usize>| !loops.iter().any(|inner| inner != *outer && inner.start >= outer.start && inner.end <= outer.end);
    let counts = loops.iter().filter(is_innermost).map(|range| most_in_flight(&lines[range.clone()]));
    counts.filter(|&count| count > 0).collect()
}

fn most_in_flight(body: &[&str]) -> u64 {
    let (mut now, mut most) = (0, 0);
    for line in body {
        if line.starts_with("buffer_load") || line.starts_with("global_load") {
            now += 1;
            most = most.max(now);
        } else if let Some(left) = waits_until(line) {
            now = now.min(left);
        }
    }
    most
}

/// Returns how many loads may be under way after a wait, or `None` if the instruction does not wait for loads. GFX12 has one wait instruction per
/// counter. Older GPUs have one wait instruction for all counters.
fn waits_until(line: &str) -> Option<u64> {
    let (_, after) = line.split_once("vmcnt(").or_else(|| line.split_once("s_wait_loadcnt"))?;
    let digits: String = after.trim_start().trim_start_matches("0x").chars().take_while(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&digits, if after.contains("0x") { 16 } else { 10 }).ok()
}
