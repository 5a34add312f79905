//! Matrices in few bits in a safetensors file: one tensor of bytes each, and in the metadata what they are.
//!
//! The bytes of a matrix are its codes, row after row, then its scales as halves: see [`Coded`](crate::quant::Coded). What is read
//! here is believed when the tensor is looked at, not before.

use super::located::{Located, check_shape};
use crate::error::{Error, Result};
use crate::quant::{self, Axis, Coding};
use crate::tensor::{DType, dense_strides};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Where the metadata say which tensors are coded, and how: JSON, by name.
const KEY: &str = "wingbeat.coded";

/// One of them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    format: String,
    /// Of the numbers, as without any coding.
    shape: Vec<usize>,
    /// Along which the numbers of a block lie.
    axis: Along,
    #[serde(rename = "turned")]
    transposed: bool,
    slices: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Along {
    Row,
    Column,
}

/// What the metadata say of tensors: name, coding, shape of the numbers.
pub(super) fn describe<'a>(tensors: impl Iterator<Item = (&'a str, Coding, &'a [usize])>) -> Option<(String, String)> {
    let said: BTreeMap<&str, Said> = tensors
        .map(|(name, coding, shape)| {
            let axis = if coding.axis == Axis::Row { Along::Row } else { Along::Column };
            let format = coding.format.name().to_string();
            (name, Said { format, shape: shape.to_vec(), axis, transposed: coding.transposed, slices: coding.slices })
        })
        .collect();
    let json = || serde_json::to_string(&said).expect("texts and numbers");
    (!said.is_empty()).then(|| (KEY.to_string(), json()))
}

/// Gives coded tensors the type and the shape of what they stand for, and takes what tells it out of the metadata.
pub(super) fn recognise(tensors: &mut [Located], metadata: &mut BTreeMap<String, String>) -> Result<()> {
    let Some(json) = metadata.remove(KEY) else { return Ok(()) };
    let said: BTreeMap<String, Said> =
        serde_json::from_str(&json).map_err(|e| Error::file(format!("expected how tensors are coded, found {e}")).at(KEY).caused_by(e))?;
    let places: HashMap<String, usize> = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
    for (name, said) in said {
        let at = |e: Error| e.at(format!("tensor {name}"));
        let tensor = places.get(&name).map(|&i| &mut tensors[i]);
        let tensor = tensor.ok_or_else(|| at(Error::file("expected a coded tensor, found none of this name")))?;
        if tensor.dtype != DType::U8 {
            return Err(at(Error::file(format!("expected codes as U8, found {}", tensor.dtype))));
        }
        let format = quant::find(&said.format).map_err(|_| {
            at(Error::file(format!("expected a format that this version knows, found {:?}", said.format))).hint("is there a newer version?")
        })?;
        check_shape(&said.shape).map_err(at)?;
        let axis = match said.axis {
            Along::Row => Axis::Row,
            Along::Column => Axis::Column,
        };
        tensor.coding = Some(Coding { format, axis, transposed: said.transposed, slices: said.slices });
        tensor.dtype = DType::Coded(format.name());
        tensor.strides = dense_strides(&said.shape);
        tensor.shape = said.shape;
    }
    Ok(())
}
