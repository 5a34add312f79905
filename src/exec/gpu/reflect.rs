//! Reads the bindings of a composed shader from naga's module: names, groups, access, and the fields of `Params`.
//!
//! Checks that a dispatch matches these bindings and fields. An error names the shader, and lists the names in the shader and in the
//! dispatch.

use crate::error::{Error, Result};
use crate::tape::{Dispatch, Param};
use naga::{AddressSpace, StorageAccess, TypeInner};

/// One binding of a shader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShaderBinding {
    pub name: String,
    pub group: u32,
    pub binding: u32,
    pub access: Access,
}

/// How a shader accesses a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Uniform,
    Read,
    ReadWrite,
}

/// One field of `Params`.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    /// The offset in `Params`, in bytes.
    offset: usize,
    kind: FieldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    U32,
    F32,
    /// `array<vec4<u32>, n>`
    Rows(usize),
}

/// The name of the uniform with a kernel's parameters.
pub const PARAMS: &str = "params";
/// The name of the uniform with the cursor, which describes a step.
pub const CURSOR: &str = "cursor";

/// The bindings and parameters of a shader.
#[derive(Debug, Clone)]
pub struct Signature {
    pub slots: Vec<ShaderBinding>,
    fields: Vec<Field>,
    params_size: usize,
}

impl Signature {
    /// Reads the signature of a composed module. Errors contain `shader` as the module's name.
    pub fn of(module: &naga::Module, shader: &str) -> Result<Signature> {
        let mut signature = Signature { slots: Vec::new(), fields: Vec::new(), params_size: 0 };
        for (_, var) in module.global_variables.iter() {
            let (Some(at), Some(name)) = (&var.binding, &var.name) else { continue };
            let access = match var.space {
                AddressSpace::Uniform => Access::Uniform,
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => Access::ReadWrite,
                AddressSpace::Storage { .. } => Access::Read,
                _ => return Err(Error::device(format!("{name} is neither a uniform nor a storage buffer")).at(shader)),
            };
            if name == PARAMS {
                (signature.fields, signature.params_size) = fields(module, var.ty, shader)?;
            }
            signature.slots.push(ShaderBinding { name: name.clone(), group: at.group, binding: at.binding, access });
        }
        signature.slots.sort_by_key(|s| (s.group, s.binding));
        Ok(signature)
    }

    /// Checks that the dispatch has the same bindings and parameters as the shader, each once.
    pub fn check(&self, dispatch: &Dispatch) -> Result<()> {
        let wanted = self.slots.iter().map(|s| s.name.as_str()).filter(|n| *n != PARAMS && *n != CURSOR);
        let given = dispatch.bindings.iter().map(|(n, _)| *n);
        same("binding", dispatch.shader, wanted.collect(), given.collect())?;
        let wanted = self.fields.iter().map(|f| f.name.as_str()).collect();
        same("field of Params", dispatch.shader, wanted, dispatch.params.iter().map(|(n, _)| *n).collect())
    }

    /// Encodes the parameters of a dispatch as the bytes of `Params`.
    pub fn params(&self, dispatch: &Dispatch) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.params_size];
        for (name, value) in &dispatch.params {
            let field = self.fields.iter().find(|f| f.name == *name).expect("checked before");
            let found: Vec<u8> = match (field.kind, value) {
                (FieldKind::U32, Param::U32(v)) => v.to_le_bytes().to_vec(),
                (FieldKind::F32, Param::F32(v)) => v.to_le_bytes().to_vec(),
                (FieldKind::Rows(n), Param::Rows(rows)) if rows.len() == n => bytemuck::cast_slice(rows).to_vec(),
                (kind, value) => {
                    return Err(Error::device(format!("Params.{name} is {kind:?} in the shader and {value:?} in Rust")).at(dispatch.shader));
                }
            };
            bytes[field.offset..field.offset + found.len()].copy_from_slice(&found);
        }
        Ok(bytes)
    }
}

fn same(what: &str, shader: &str, mut wanted: Vec<&str>, mut given: Vec<&str>) -> Result<()> {
    wanted.sort_unstable();
    given.sort_unstable();
    if wanted == given {
        return Ok(());
    }
    Err(Error::device(format!("{what}: the shader has {wanted:?}, the dispatch has {given:?}")).at(shader))
}

fn fields(module: &naga::Module, ty: naga::Handle<naga::Type>, shader: &str) -> Result<(Vec<Field>, usize)> {
    let TypeInner::Struct { members, span } = &module.types[ty].inner else {
        return Err(Error::device("params is not a struct").at(shader));
    };
    let mut found = Vec::new();
    for m in members {
        let (name, offset) = (m.name.clone().unwrap_or_default(), m.offset as usize);
        let kind = match module.types[m.ty].inner {
            TypeInner::Scalar(naga::Scalar::U32) => FieldKind::U32,
            TypeInner::Scalar(naga::Scalar::F32) => FieldKind::F32,
            TypeInner::Array { size: naga::ArraySize::Constant(n), stride: 16, .. } => FieldKind::Rows(n.get() as usize),
            // The fields of a nested struct count as fields of `Params`.
            TypeInner::Struct { .. } => {
                let (inner, _) = fields(module, m.ty, shader)?;
                found.extend(inner.into_iter().map(|f| Field { offset: offset + f.offset, ..f }));
                continue;
            }
            _ => {
                return Err(Error::device(format!(
                    "the field Params.{name} has an unsupported type: use u32, f32 or an array of vec4<u32>"
                ))
                .at(shader));
            }
        };
        found.push(Field { name, offset, kind });
    }
    Ok((found, *span as usize))
}
