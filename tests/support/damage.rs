//! Damages files as disks, memory and broken copies do. Each seed gives one kind of damage at one place.

/// Returns the number of damaged files that a test tries: `few`, or 1000 if WINGBEAT_TEST_ALL is set.
pub fn attempts(few: u64) -> u64 {
    if super::runs_all() { 1000 } else { few }
}

/// Pseudorandom numbers: SplitMix64.
struct Random(u64);

impl Random {
    /// Returns a number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % n.max(1) as u64) as usize
    }
}

/// Returns a damaged copy of a file. The damage can be without effect, such as zeros over zeros.
pub fn damaged(file: &[u8], seed: u64) -> Vec<u8> {
    let (mut file, mut random) = (file.to_vec(), Random(seed));
    let n = file.len();
    // The end of a safetensors header. Other files have no header.
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    let header = if header < n as u64 - 16 { 8 + header as usize } else { 8 };
    let flip = |file: &mut [u8], at: usize, bit: usize| file[at] ^= 1 << bit;
    match seed % 10 {
        0 => flip(&mut file, random.below(n), random.below(8)),
        1 => flip(&mut file, random.below(header), random.below(8)),
        2 => (0..2 + random.below(100)).for_each(|_| flip(&mut file, random.below(n), random.below(8))),
        3 => file.truncate(random.below(n)),
        4 => {
            let block = [512, 4096, n / 2][random.below(3)].min(n);
            let at = random.below(n - block + 1);
            file[at..at + block].fill(0);
        }
        // NaN in some numbers.
        5 => {
            for _ in 0..1 + random.below(20) {
                let at = header + 4 * random.below((n - header) / 4);
                file[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
            }
        }
        // A number that is a little wrong.
        6 => {
            let at = header + 4 * random.below((n - header) / 4);
            flip(&mut file, at, random.below(8));
        }
        // Two blocks in the wrong order.
        7 => {
            let block = (n / 4).min(1 + random.below(4096));
            let (a, b) = (random.below(n / 2 - block), n / 2 + random.below(n / 2 - block));
            (0..block).for_each(|i| file.swap(a + i, b + i));
        }
        8 => {
            let (at, len) = (random.below(n), 1 + random.below(n / 2));
            file[at..(at + len).min(n)].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        }
        _ => file.extend((0..1 + random.below(5000)).map(|i| i as u8)),
    }
    file
}
