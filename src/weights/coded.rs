//! Quantised matrices in a safetensors file: each matrix is a tensor of bytes, and the file's metadata describe the format of the matrix.
//!
//! The bytes of a matrix are the codes (quantised weights) of its rows, then its scales as f16. [`Coded`](crate::quant::Coded) describes this
//! layout. The number of bytes is checked when a view of the tensor is created.

use super::located::{LocatedTensor, check_shape};
use crate::error::{Error, Result, with_place};
use crate::quant::{self, Axis, Coding};
use crate::tensor::{DType, dense_strides};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The metadata key under which a file describes its quantised tensors. The value is a JSON object that maps tensor names to descriptions.
const KEY: &str = "wingbeat.coded";

/// The description of a quantised tensor, as the JSON under [`KEY`] stores it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    format: String,
    /// The shape that the tensor had before quantisation.
    shape: Vec<usize>,
    /// The direction of the blocks of weights that share a scale: along a row or along a column.
    axis: Direction,
    #[serde(rename = "turned")]
    transposed: bool,
    slices: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Row,
    Column,
}

/// Returns the key and the value of the metadata entry that describes `tensors`, or `None` if `tensors` is empty. Each tensor is given by its
/// name, its coding, and its shape before quantisation.
pub(super) fn describe<'a>(tensors: impl Iterator<Item = (&'a str, Coding, &'a [usize])>) -> Option<(String, String)> {
    let described: BTreeMap<&str, Description> = tensors
        .map(|(name, coding, shape)| {
            let axis = if coding.axis == Axis::Row { Direction::Row } else { Direction::Column };
            let format = coding.format.name().to_string();
            (name, Description { format, shape: shape.to_vec(), axis, transposed: coding.transposed, slices: coding.slices })
        })
        .collect();
    let json = || serde_json::to_string(&described).expect("texts and numbers");
    (!described.is_empty()).then(|| (KEY.to_string(), json()))
}

/// Removes the metadata entry that describes quantised tensors, and sets the coding, type and original shape of each tensor in the entry. Does
/// nothing if the metadata have no such entry.
///
/// # Errors
///
/// `File` if the entry is damaged. `File` if it names a missing tensor, a tensor whose type is not U8, or an unknown format.
pub(super) fn recognise(tensors: &mut [LocatedTensor], metadata: &mut BTreeMap<String, String>) -> Result<()> {
    let Some(json) = metadata.remove(KEY) else { return Ok(()) };
    let described: BTreeMap<String, Description> = serde_json::from_str(&json).map_err(|e| {
        Error::file(format!("the metadata key {KEY} must list the formats of quantised tensors as JSON: {}", with_place(&e)))
            .hint("convert the model again")
            .caused_by(e)
    })?;
    let places: HashMap<String, usize> = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
    for (name, described) in described {
        let at = |e: Error| e.at(format!("tensor {name}"));
        let tensor = places.get(&name).map(|&i| &mut tensors[i]);
        let tensor =
            tensor.ok_or_else(|| at(Error::file(format!("the metadata key {KEY} names this tensor, but the file lacks the tensor"))))?;
        if tensor.dtype != DType::U8 {
            return Err(at(Error::file(format!("expected a quantised tensor of type U8, found {}", tensor.dtype))));
        }
        let format = quant::find(&described.format).map_err(|_| {
            at(Error::file(format!("unknown weight format {:?}", described.format))).hint("a newer version of wingbeat may read it")
        })?;
        check_shape(&described.shape).map_err(at)?;
        let axis = match described.axis {
            Direction::Row => Axis::Row,
            Direction::Column => Axis::Column,
        };
        tensor.coding = Some(Coding { format, axis, transposed: described.transposed, slices: described.slices });
        tensor.dtype = DType::Coded(format.name());
        tensor.strides = dense_strides(&described.shape);
        tensor.shape = described.shape;
    }
    Ok(())
}
