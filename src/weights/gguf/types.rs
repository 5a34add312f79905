//! The types of tensors in GGUF files, by their ids in ggml.

use crate::error::{Error, Result};
use crate::tensor::DType;

/// The supported types of tensors.
pub const TYPES: [(u32, DType); 18] = [
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (6, DType::Q5_0),
    (7, DType::Q5_1),
    (8, DType::Q8_0),
    (10, DType::Q2K),
    (11, DType::Q3K),
    (12, DType::Q4K),
    (13, DType::Q5K),
    (14, DType::Q6K),
    (20, DType::IQ4NL),
    (23, DType::IQ4XS),
    (30, DType::BF16),
    (34, DType::TQ1_0),
    (35, DType::TQ2_0),
    (39, DType::MXFP4),
];

/// The unsupported types of tensors. Each row begins with the supported type that an error suggests in place of the row's types. For types with one
/// bit per weight, the error suggests Q2_K: TQ1_0 is nearer in size, but suits only models that were trained with ternary weights. ggml itself no
/// longer reads the types 4, 5, 31 to 33 and 36 to 38, but old files have them.
const REFUSED: [(DType, &[(u32, &str)]); 7] = [
    (DType::Q2K, &[(16, "IQ2_XXS"), (17, "IQ2_XS"), (19, "IQ1_S"), (22, "IQ2_S"), (29, "IQ1_M"), (41, "Q1_0")]),
    (DType::Q3K, &[(18, "IQ3_XXS"), (21, "IQ3_S")]),
    (DType::Q4K, &[(40, "NVFP4")]),
    (DType::Q4_0, &[(4, "Q4_2"), (5, "Q4_3"), (31, "Q4_0_4_4"), (32, "Q4_0_4_8"), (33, "Q4_0_8_8")]),
    (DType::IQ4NL, &[(36, "IQ4_NL_4_4"), (37, "IQ4_NL_4_8"), (38, "IQ4_NL_8_8")]),
    (DType::Q8_0, &[(9, "Q8_1"), (15, "Q8_K")]),
    (DType::F16, &[(24, "I8"), (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64")]),
];

/// Returns the type whose id in ggml is `id`.
///
/// # Errors
///
/// `File` if this type is unsupported. The error has the type's name, and the types to look for instead.
pub fn dtype_of(id: u32) -> Result<DType> {
    if let Some((_, dtype)) = TYPES.iter().find(|(known, _)| *known == id) {
        return Ok(*dtype);
    }
    let refused = REFUSED.iter().find_map(|(instead, types)| Some((instead, types.iter().find(|(known, _)| *known == id)?.1)));
    let (found, advice) = match refused {
        Some((instead, name)) => (name.to_string(), format!("download the model in {instead}, or in another supported type")),
        None => (format!("the unknown type {id}"), "use a newer version of wingbeat, or download the model in a supported type".into()),
    };
    let supported = TYPES.map(|(_, dtype)| dtype.name()).join(", ");
    Err(Error::file(format!("expected a supported number type, found {found}")).hint(format!("{advice}: {supported}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_of_ggml_is_listed_once_and_every_replacement_is_supported() {
        let refused = REFUSED.iter().flat_map(|(_, types)| types.iter().map(|(id, _)| *id));
        let mut ids: Vec<u32> = TYPES.iter().map(|(id, _)| *id).chain(refused).collect();
        ids.sort();
        assert_eq!(ids, (0..=41).collect::<Vec<_>>());
        for (instead, _) in REFUSED {
            assert!(TYPES.iter().any(|(_, dtype)| *dtype == instead), "{instead}");
        }
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_weight()) {
            assert!(TYPES.iter().any(|(_, known)| *known == dtype), "{dtype}");
        }
    }
}
