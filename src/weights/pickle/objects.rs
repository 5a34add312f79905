//! The objects of a pickle: texts, integers, containers, torch storages, tensors, and the three functions that a pickle may call.
//!
//! A call of a known function builds a plain record. No code of the pickle runs.

use super::{DAMAGED, SAVE_AGAIN};
use crate::error::{Error, Result, size};
use crate::tensor::DType;
use crate::weights::located::{MAX_NAME_BYTES, check_name};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The index of an object in the arena.
pub(super) type Id = u32;

/// Limit on the memory that the values of one pickle take, in bytes. A checkpoint of 10 000 tensors takes 16 MB.
const MAX_BYTES: usize = 256 << 20;
const MAX_RANK: usize = 8;
/// The maximum length of a list of numbers. Longer lists are left out.
const MAX_LISTED: usize = 1024;

/// An object of a pickle.
#[derive(Debug)]
pub(super) enum PickleValue<'a> {
    /// None, a boolean, a float or bytes: accepted and never read.
    Other,
    Int(i64),
    Text(&'a str),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Function(PickleFunction),
    StorageType(DType),
    Storage(Box<Storage<'a>>),
    Tensor(Box<Tensor<'a>>),
}

/// A function that a pickle may call.
#[derive(Debug, Clone, Copy)]
pub(super) enum PickleFunction {
    Tensor,
    Parameter,
    OrderedDict,
}

/// A torch storage: a member of the archive with raw elements.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Storage<'a> {
    pub key: &'a str,
    pub dtype: DType,
    pub n_elements: usize,
}

/// A strided part of a storage. Offset and strides are in elements, and are not checked yet.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Tensor<'a> {
    pub storage: Storage<'a>,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

#[derive(Debug)]
pub(in super::super) struct NamedTensor<'a> {
    pub name: &'a str,
    pub tensor: Tensor<'a>,
}

/// The keys under which training programs keep a model's dictionary of tensors, beside the state of the training.
const WRAPPERS: [&str; 4] = ["state_dict", "model_state_dict", "module", "model"];

/// The contents of the pickle's dictionary of tensors: the outermost dictionary, or the dictionary under one of its keys `WRAPPERS`.
#[derive(Debug)]
pub(in super::super) struct Contents<'a> {
    pub tensors: Vec<NamedTensor<'a>>,
    /// The keys whose values are not tensors. Keys that are too long are left out.
    pub keys: BTreeSet<&'a str>,
    /// The keys whose values are lists of whole numbers, with these numbers. Long lists are left out.
    pub lists: BTreeMap<&'a str, Vec<usize>>,
}

/// Returns the value of the pickle's global `module.name`, if a checkpoint may use this global.
///
/// # Errors
///
/// `File` for any other global. Nothing is executed.
pub(super) fn global(module: &str, name: &str) -> Result<PickleValue<'static>> {
    Ok(match (module, name) {
        ("torch._utils", "_rebuild_tensor_v2") => PickleValue::Function(PickleFunction::Tensor),
        ("torch._utils", "_rebuild_parameter") => PickleValue::Function(PickleFunction::Parameter),
        ("collections", "OrderedDict") => PickleValue::Function(PickleFunction::OrderedDict),
        ("torch", "DoubleStorage") => PickleValue::StorageType(DType::F64),
        ("torch", "FloatStorage") => PickleValue::StorageType(DType::F32),
        ("torch", "HalfStorage") => PickleValue::StorageType(DType::F16),
        ("torch", "BFloat16Storage") => PickleValue::StorageType(DType::BF16),
        ("torch", "LongStorage") => PickleValue::StorageType(DType::I64),
        ("torch", "IntStorage") => PickleValue::StorageType(DType::I32),
        ("torch", "ShortStorage") => PickleValue::StorageType(DType::I16),
        ("torch", "CharStorage") => PickleValue::StorageType(DType::I8),
        ("torch", "ByteStorage") => PickleValue::StorageType(DType::U8),
        ("torch", "BoolStorage") => PickleValue::StorageType(DType::Bool),
        _ => {
            let message = format!("refused: the pickle asks to run the Python function {module}.{name}; nothing was executed");
            return Err(Error::file(message).hint(SAVE_AGAIN));
        }
    })
}

impl PickleValue<'_> {
    /// Returns the memory that the value takes, in bytes.
    fn size_bytes(&self) -> usize {
        let beside = match self {
            PickleValue::List(ids) | PickleValue::Tuple(ids) => size_of_val(ids.as_slice()),
            PickleValue::Dict(pairs) => size_of_val(pairs.as_slice()),
            PickleValue::Storage(_) => size_of::<Storage<'_>>(),
            PickleValue::Tensor(tensor) => tensor.size_bytes(),
            PickleValue::Other | PickleValue::Int(_) | PickleValue::Text(_) | PickleValue::Function(_) | PickleValue::StorageType(_) => 0,
        };
        size_of::<PickleValue<'_>>() + beside
    }
}

impl Tensor<'_> {
    /// Returns the memory that the tensor, its shape and its strides take, in bytes.
    fn size_bytes(&self) -> usize {
        size_of::<Tensor<'_>>() + size_of_val(self.shape.as_slice()) + size_of_val(self.strides.as_slice())
    }
}

/// The number of bytes of memory that a pickle may still take.
pub(super) struct PickleBudget {
    left_bytes: usize,
}

impl Default for PickleBudget {
    fn default() -> Self {
        PickleBudget { left_bytes: MAX_BYTES }
    }
}

impl PickleBudget {
    /// Takes bytes from the budget. Freed memory does not return to the budget, so the budget also limits the work.
    ///
    /// # Errors
    ///
    /// `File` if the budget is exhausted.
    pub fn pay(&mut self, bytes: usize) -> Result<()> {
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or_else(|| {
            let message = format!("refused: the pickle takes more than {} of memory", size(MAX_BYTES as u64));
            Error::file(message).hint(DAMAGED)
        })?;
        Ok(())
    }
}

/// All objects of one pickle.
#[derive(Default)]
pub(super) struct Arena<'a> {
    values: Vec<PickleValue<'a>>,
    pub budget: PickleBudget,
}

impl<'a> Arena<'a> {
    /// Adds an object and returns its index. This method and the methods below fail with `File` if an object has a wrong type or if the budget
    /// is exhausted.
    pub fn add(&mut self, value: PickleValue<'a>) -> Result<Id> {
        self.budget.pay(value.size_bytes())?;
        self.values.push(value);
        Ok((self.values.len() - 1) as Id)
    }

    fn get(&self, id: Id) -> &PickleValue<'a> {
        &self.values[id as usize]
    }

    /// Returns the text in object `id`.
    pub fn text(&self, id: Id) -> Result<&'a str> {
        match self.get(id) {
            PickleValue::Text(text) => Ok(text),
            other => Err(expected("a string", other)),
        }
    }

    /// Returns the integer in object `id`, which must be at least 0.
    fn size(&self, id: Id) -> Result<usize> {
        match self.get(id) {
            PickleValue::Int(n) => {
                usize::try_from(*n).map_err(|_| Error::file(format!("expected a size of at least 0 in the pickle, found {n}")))
            }
            other => Err(expected("a size", other)),
        }
    }

    /// Returns the integers of the tuple `id`. Each integer must be at least 0.
    fn sizes(&self, id: Id) -> Result<Vec<usize>> {
        let ids = self.tuple(id)?;
        if ids.len() > MAX_RANK {
            return Err(Error::file(format!("expected a tensor of at most {MAX_RANK} dimensions, found {} dimensions", ids.len())));
        }
        ids.iter().map(|&id| self.size(id)).collect()
    }

    /// Returns the objects of the tuple `id`.
    fn tuple(&self, id: Id) -> Result<&[Id]> {
        match self.get(id) {
            PickleValue::Tuple(ids) => Ok(ids),
            other => Err(expected("a tuple", other)),
        }
    }

    /// Appends objects to the list `list`.
    pub fn append(&mut self, list: Id, items: Vec<Id>) -> Result<()> {
        self.budget.pay(size_of_val(items.as_slice()))?;
        match &mut self.values[list as usize] {
            PickleValue::List(ids) => ids.extend(items),
            other => return Err(expected("a list", other)),
        }
        Ok(())
    }

    /// Adds entries to the dictionary `dict`. `items` are a key, its value, the next key, and so on.
    pub fn set_items(&mut self, dict: Id, items: Vec<Id>) -> Result<()> {
        if !items.len().is_multiple_of(2) {
            return Err(Error::file("a dictionary in the pickle has a key without a value"));
        }
        self.budget.pay(size_of_val(items.as_slice()))?;
        match &mut self.values[dict as usize] {
            PickleValue::Dict(pairs) => pairs.extend(items.chunks_exact(2).map(|kv| (kv[0], kv[1]))),
            other => return Err(expected("a dictionary", other)),
        }
        Ok(())
    }

    /// Returns the storage that the tuple `id` describes: `('storage', type, key, location, number of elements)`. The location is ignored.
    pub fn storage(&self, id: Id) -> Result<PickleValue<'a>> {
        let &[tag, kind, key, _location, n] = self.tuple(id)? else {
            return Err(Error::file("expected a torch storage of five parts in the pickle, found another number of parts"));
        };
        let (tag, key, n_elements) = (self.text(tag)?, self.text(key)?, self.size(n)?);
        if tag != "storage" {
            return Err(Error::file(format!("expected a torch storage in the pickle, found '{tag}'")));
        }
        match self.get(kind) {
            PickleValue::StorageType(dtype) => Ok(PickleValue::Storage(Box::new(Storage { key, dtype: *dtype, n_elements }))),
            other => Err(expected("a storage type", other)),
        }
    }

    /// Calls a known function. Adds its result to the arena and returns the result's index.
    pub fn call(&mut self, function: Id, arguments: Id) -> Result<Id> {
        let PickleValue::Function(function) = *self.get(function) else {
            return Err(expected("a function", self.get(function)));
        };
        let arguments = self.tuple(arguments)?;
        match (function, arguments) {
            (PickleFunction::Tensor, &[storage, offset, shape, strides, ..]) => {
                let PickleValue::Storage(storage) = self.get(storage) else {
                    return Err(expected("a storage", self.get(storage)));
                };
                let (storage, offset) = (storage.as_ref().clone(), self.size(offset)?);
                let tensor = Tensor { storage, offset, shape: self.sizes(shape)?, strides: self.sizes(strides)? };
                self.add(PickleValue::Tensor(Box::new(tensor)))
            }
            (PickleFunction::Parameter, &[tensor, ..]) if matches!(self.get(tensor), PickleValue::Tensor(_)) => Ok(tensor),
            (PickleFunction::OrderedDict, []) => self.add(PickleValue::Dict(Vec::new())),
            (PickleFunction::OrderedDict, &[pairs]) => {
                let PickleValue::List(pairs) = &self.values[pairs as usize] else {
                    return Err(expected("a list of pairs", self.get(pairs)));
                };
                // The budget pays before the pairs are copied, because a pickle may copy a list of a megabyte a thousand times.
                self.budget.pay(pairs.len() * size_of::<(Id, Id)>())?;
                let pairs: Result<Vec<_>> = pairs
                    .iter()
                    .map(|&pair| match self.get(pair) {
                        PickleValue::Tuple(kv) | PickleValue::List(kv) if kv.len() == 2 => Ok((kv[0], kv[1])),
                        other => Err(expected("a pair", other)),
                    })
                    .collect();
                self.add(PickleValue::Dict(pairs?))
            }
            _ => Err(Error::file("the pickle calls a function with the wrong number or types of arguments")),
        }
    }

    /// Returns the contents of the dictionary `top`, or of the dictionary under the first of the keys [`WRAPPERS`] in `top`.
    pub fn contents(&mut self, top: Id) -> Result<Contents<'a>> {
        let mut pairs = self.dict(top)?;
        let under = |name: &str| {
            let is_named = |key: Id| matches!(self.get(key), PickleValue::Text(text) if *text == name);
            pairs.iter().find(|(key, value)| is_named(*key) && matches!(self.get(*value), PickleValue::Dict(_)))
        };
        // If `top` itself has tensors, only `state_dict` counts as a wrapper. In a dictionary of tensors, the other keys may be ordinary entries.
        let has_tensors = pairs.iter().any(|(_, value)| matches!(self.get(*value), PickleValue::Tensor(_)));
        let n = if has_tensors { 1 } else { WRAPPERS.len() };
        if let Some((_, id)) = WRAPPERS.into_iter().take(n).find_map(under) {
            pairs = self.dict(*id)?;
        }
        let mut contents = Contents { tensors: Vec::new(), keys: BTreeSet::new(), lists: BTreeMap::new() };
        let (mut seen, mut size_bytes) = (HashSet::new(), 0);
        for (key, value) in pairs {
            let PickleValue::Text(name) = *self.get(*key) else { continue };
            let PickleValue::Tensor(tensor) = self.get(*value) else {
                if name.len() <= MAX_NAME_BYTES {
                    contents.keys.insert(name);
                    let numbers = self.numbers(*value);
                    size_bytes += numbers.as_ref().map_or(0, |n| size_of_val(n.as_slice()));
                    contents.lists.extend(numbers.filter(|_| size_bytes <= self.budget.left_bytes).map(|n| (name, n)));
                }
                continue;
            };
            check_name(name)?;
            if !seen.insert(name) {
                return Err(Error::file("two tensors have this name").at(format!("tensor {name}")));
            }
            size_bytes += size_of::<&str>() + size_of::<NamedTensor<'_>>() + tensor.size_bytes();
            if size_bytes > self.budget.left_bytes {
                break;
            }
            contents.tensors.push(NamedTensor { name, tensor: tensor.as_ref().clone() });
        }
        self.budget.pay(size_bytes)?;
        Ok(contents)
    }

    /// Returns the numbers of a list or tuple of whole numbers of at least 0. Returns `None` for any other object and for a long list.
    fn numbers(&self, id: Id) -> Option<Vec<usize>> {
        match self.get(id) {
            PickleValue::List(ids) | PickleValue::Tuple(ids) if ids.len() <= MAX_LISTED => {
                ids.iter().map(|&id| self.size(id).ok()).collect()
            }
            _ => None,
        }
    }

    /// Returns the entries of the dictionary `id`.
    fn dict(&self, id: Id) -> Result<&[(Id, Id)]> {
        match self.get(id) {
            PickleValue::Dict(pairs) => Ok(pairs),
            other => Err(expected("a dictionary of tensors", other)),
        }
    }
}

/// Returns the error for an object of a wrong type.
fn expected(what: &str, found: &PickleValue<'_>) -> Error {
    let found = match found {
        PickleValue::Other => "another value",
        PickleValue::Int(_) => "an integer",
        PickleValue::Text(_) => "a string",
        PickleValue::List(_) => "a list",
        PickleValue::Tuple(_) => "a tuple",
        PickleValue::Dict(_) => "a dictionary",
        PickleValue::Function(_) => "a function",
        PickleValue::StorageType(_) => "a storage type",
        PickleValue::Storage(_) => "a storage",
        PickleValue::Tensor(_) => "a tensor",
    };
    Error::file(format!("expected {what} in the pickle, found {found}")).hint(DAMAGED)
}
