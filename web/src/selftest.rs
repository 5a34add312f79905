//! Compares the kernels on this GPU with their twins, the reference implementations on the CPU.

use crate::error::js;
use crate::options::open_gpu;
use js_sys::Function;
use serde_json::json;
use std::sync::Arc;
use wasm_bindgen::prelude::*;
use wingbeat::low_level::exec::selftest::{Extent, cases, run_async};
use wingbeat::low_level::quant;
use wingbeat::low_level::words::WORDS;

/// Runs all cases of the quick test for every word (fused operation), or only one case per word if `few` is true. `formats` has the names of the
/// weight formats to test, separated by commas. `class` chooses the kernels; an empty text takes the kernels that suit the GPU. Returns JSON:
/// `{cases, wrong: [text]}`. `progress(done, total)` is called after each case. An error that `progress` throws ends the test.
#[wasm_bindgen]
pub async fn self_test(class: &str, formats: &str, few: bool, progress: &Function) -> Result<String, JsValue> {
    let device = Arc::new(open_gpu(Some(class).filter(|class| !class.is_empty()), false).await.map_err(js)?);
    let most = if few { 1 } else { usize::MAX };
    let mut all = Vec::new();
    for name in formats.split(',') {
        let format = quant::find(name).map_err(js)?;
        for word in WORDS {
            all.extend(cases(word, format, Extent::Quick).into_iter().take(most).map(|case| (word, format, case)));
        }
    }
    let n = all.len();
    let mut wrong = Vec::new();
    for (i, (word, format, case)) in all.into_iter().enumerate() {
        match run_async(case, format, &device).await {
            Ok(outcome) if outcome.is_right() => {}
            Ok(o) => wrong.push(format!("{}: expected an error of at most {:.0e}, found {:.1e}", o.case, o.bound, o.error)),
            Err(e) => wrong.push(format!("{}: {e}", word.name)),
        }
        progress.call2(&JsValue::NULL, &(i + 1).into(), &n.into())?;
    }
    Ok(json!({"cases": n, "wrong": wrong}).to_string())
}
