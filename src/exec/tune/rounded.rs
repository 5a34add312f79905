//! Measures whether products of many tokens should round their inputs to eight bits.

use super::fastest::{fastest, tape};
use crate::error::Result;
use crate::exec::gpu::{AdapterKind, Device};
use crate::exec::products::Products;
use crate::exec::selftest::{first_wrong, products_of_words};
use crate::quant::{self, Activations};
use crate::tape::{Caps, Tuning};
use crate::words::testing::Case;
use std::sync::Arc;

/// The format of the measured weights. Formats of other widths decode weights differently, but the products are the same.
const FORMAT: &str = "q4_k";

fn rounded_products() -> Vec<Case> {
    products_of_words().into_iter().filter(|case| case.tape.activations != Activations::Float).collect()
}

/// Returns `first` with the fastest tile for each size of step, for products with rounded inputs. A size of step has no tile if products in floats
/// are as fast. Returns `first` unchanged if a product is wrong on this driver. `progress` is called with the number of measured sizes.
///
/// # Errors
/// The errors of the device.
pub fn measure(device: &Arc<Device>, kind: AdapterKind, first: &Tuning, progress: &mut dyn FnMut(usize)) -> Result<Tuning> {
    let mut recorded = tape(kind);
    recorded.store_as(quant::find(FORMAT)?);
    recorded.activations = Activations::Auto;
    recorded.keep_rounded();
    let products = Products::load(device, recorded)?;
    let on = |tuning: &Tuning| device.with_caps(Caps { tuning: tuning.clone(), ..device.caps.clone() });
    let mut best = first.clone();
    for (i, n) in Tuning::STEPS.into_iter().enumerate() {
        progress(i);
        let tiles = first.rounded_candidates(n).into_iter().map(Some);
        let candidates: Vec<Tuning> = [None].into_iter().chain(tiles).map(|tile| best.with_rounded(n, tile)).collect();
        best = fastest(&products, &candidates, &on, n).clone();
    }
    progress(Tuning::STEPS.len());
    if best != *first
        && let Some(wrong) = first_wrong(&Arc::new(on(&best)), rounded_products(), FORMAT)
    {
        log::warn!("products with rounded activations are wrong on this driver and not used: {wrong}");
        return Ok(first.clone());
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Class;

    /// The measurement returns candidates on every adapter, whatever is faster there.
    #[test]
    fn a_measurement_finds_tiles_or_none() {
        let Some(adapter) = crate::exec::gpu::adapters(Default::default()).into_iter().next() else {
            return eprintln!("SKIPPED: there is no adapter");
        };
        let base = Device::open(&adapter, false).unwrap();
        let device = Arc::new(base.with_caps(Caps::plain(Class::Groups, base.caps.max_binding)));
        let mut steps = Vec::new();
        let found = measure(&device, AdapterKind::Cpu, &Tuning::default(), &mut |i| steps.push(i)).unwrap();
        assert!(found.is_sound(), "{found:?}");
        assert_eq!(steps, [0, 1, 2, 3]);
        let tiled = Tuning::default().with_rounded(32, Some(Tuning::default().rounded_candidates(32)[1]));
        assert!(tiled.is_sound() && !tiled.with_rounded(64, tiled.rounded(32)).is_sound());
    }
}
