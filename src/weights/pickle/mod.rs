//! A restricted pickle reader: an interpreter of the opcodes that torch writes. The interpreter builds data and runs no code of the pickle.
//!
//! Objects are in an arena and refer to each other by index. So neither parsing nor dropping recurses, and a shared object exists once. All
//! memory, including copies, is taken from one budget of bytes. Opcodes and globals that torch does not write are refused by name. This module
//! knows no files.

mod objects;

pub(super) use objects::{Contents, NamedTensor};

use crate::error::{Error, Result};
use objects::{Arena, Id, PickleValue};
use std::collections::HashMap;

/// The largest number of open MARKs, one per nested container. Real checkpoints have at most five.
const MAX_DEPTH: usize = 256;
const MAX_TEXT_BYTES: usize = 1 << 16;
const MAX_PROTOCOL: u8 = 5;
/// The hint for a damaged pickle.
const DAMAGED: &str = "the checkpoint is hostile or damaged: download the checkpoint again, or use a .safetensors file";
/// The hint for a pickle with other contents than tensors.
const SAVE_AGAIN: &str = "use a checkpoint that holds only tensors, or a .safetensors file";
/// The bytes per entry of the memo: number and index of an object, and unused space of the hash table.
const MEMO_BYTES: usize = 16;

/// Reads one pickle and lists the tensors of its dictionary.
///
/// # Errors
///
/// `File` if the pickle is damaged, asks for anything but tensors, or takes too much memory. The error names the byte at which the opcode
/// begins.
pub(super) fn read(bytes: &[u8]) -> Result<Contents<'_>> {
    let mut machine = Machine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), arena: Arena::default() };
    loop {
        let at = machine.at;
        match machine.step().and_then(|top| top.map(|top| machine.arena.contents(top)).transpose()) {
            Ok(None) => {}
            Ok(Some(contents)) => return Ok(contents),
            Err(e) => return Err(e.at(format!("byte {at}"))),
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Id>,
    /// The height of the stack at each open MARK.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    arena: Arena<'a>,
}

impl<'a> Machine<'a> {
    /// Executes one opcode. Returns the outermost object if the opcode is STOP, otherwise `None`.
    fn step(&mut self) -> Result<Option<Id>> {
        match self.byte()? {
            b'.' => return self.pop().map(Some),
            0x80 => match self.byte()? {
                0..=MAX_PROTOCOL => {}
                p => {
                    return Err(
                        Error::file(format!("expected a pickle of protocol {MAX_PROTOCOL} or lower, found protocol {p}")).hint(SAVE_AGAIN)
                    );
                }
            },
            0x95 => drop(self.take(8)?), // FRAME: a length, which only a reader without the whole pickle needs
            b'(' => {
                if self.marks.len() >= MAX_DEPTH {
                    return Err(Error::file(format!("refused: the pickle is nested more than {MAX_DEPTH} deep; nothing was executed"))
                        .hint(SAVE_AGAIN));
                }
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' | 0x88 | 0x89 => self.make(PickleValue::Other)?,
            b'J' => {
                let n = i32::from_le_bytes(self.array()?);
                self.make(PickleValue::Int(n.into()))?;
            }
            b'K' => {
                let n = self.byte()?;
                self.make(PickleValue::Int(n.into()))?;
            }
            b'M' => {
                let n = u16::from_le_bytes(self.array()?);
                self.make(PickleValue::Int(n.into()))?;
            }
            0x8a => self.long()?,
            b'G' => {
                self.take(8)?;
                self.make(PickleValue::Other)?;
            }
            b'X' | b'T' => {
                let n = u32::from_le_bytes(self.array()?).into();
                self.text(n)?;
            }
            0x8c | b'U' => {
                let n = self.byte()?.into();
                self.text(n)?;
            }
            0x8d => {
                let n = u64::from_le_bytes(self.array()?);
                self.text(n)?;
            }
            b'C' => {
                let n = self.byte()?.into();
                self.take(n)?;
                self.make(PickleValue::Other)?;
            }
            b')' => self.make(PickleValue::Tuple(Vec::new()))?,
            b']' => self.make(PickleValue::List(Vec::new()))?,
            b'}' => self.make(PickleValue::Dict(Vec::new()))?,
            b't' => {
                let items = self.pop_to_mark()?;
                self.make(PickleValue::Tuple(items))?;
            }
            n @ 0x85..=0x87 => {
                let items = self.pop_many(usize::from(n - 0x84))?;
                self.make(PickleValue::Tuple(items))?;
            }
            b'l' => {
                let items = self.pop_to_mark()?;
                self.make(PickleValue::List(items))?;
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                self.make(PickleValue::Dict(Vec::new()))?;
                self.set_items(items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.append(items)?;
            }
            b's' => {
                let items = self.pop_many(2)?;
                self.set_items(items)?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(items)?;
            }
            b'q' => {
                let slot = self.byte()?.into();
                self.put(slot)?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.put(slot)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            b'h' => {
                let slot = self.byte()?.into();
                self.get(slot)?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.get(slot)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => {
                let items = self.pop_many(2)?;
                let (module, name) = (self.arena.text(items[0])?, self.arena.text(items[1])?);
                self.global(module, name)?;
            }
            b'R' => {
                let items = self.pop_many(2)?;
                let made = self.arena.call(items[0], items[1])?;
                self.push(made)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.arena.storage(id)?;
                self.make(storage)?;
            }
            // BUILD sets attributes, such as `_metadata` of a state dict. No attribute is needed, so the value is dropped.
            b'b' => drop(self.pop()?),
            other => {
                return Err(Error::file(format!(
                    "refused: the pickle uses the instruction 0x{other:02x}, which no checkpoint needs; nothing was executed"
                ))
                .hint(SAVE_AGAIN));
            }
        }
        Ok(None)
    }

    /// Reads `n` bytes.
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..n).ok_or_else(|| {
            Error::file(format!("the pickle ends early: expected {n} more bytes, found {} bytes", rest.len())).hint(DAMAGED)
        })?;
        self.at += n;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take returns as many bytes as asked"))
    }

    /// Reads and pushes a text of `n` bytes.
    fn text(&mut self, n: u64) -> Result<()> {
        if n > MAX_TEXT_BYTES as u64 {
            return Err(Error::file(format!(
                "expected strings of at most {MAX_TEXT_BYTES} bytes in the pickle, found a string of {n} bytes"
            ))
            .hint(DAMAGED));
        }
        let bytes = self.take(n as usize)?;
        let text = std::str::from_utf8(bytes).map_err(|_| Error::file("the pickle has a string that is not UTF-8").hint(DAMAGED))?;
        self.make(PickleValue::Text(text))
    }

    /// Reads the module or the name of a global, up to the end of its line.
    fn line(&mut self) -> Result<&'a str> {
        let rest = &self.bytes[self.at..];
        let end = rest
            .iter()
            .take(256)
            .position(|&b| b == b'\n')
            .ok_or_else(|| Error::file("the pickle names a Python object with more than 256 bytes").hint(DAMAGED))?;
        let line = self.take(end)?;
        self.at += 1;
        std::str::from_utf8(line).map_err(|_| Error::file("the pickle names a Python object with bytes that are not UTF-8").hint(DAMAGED))
    }

    /// Reads and pushes a little-endian two's complement integer of at most 8 bytes.
    fn long(&mut self) -> Result<()> {
        let n = usize::from(self.byte()?);
        let bytes = self.take(n)?;
        if n > 8 {
            return Err(
                Error::file(format!("expected whole numbers of at most 8 bytes in the pickle, found a number of {n} bytes")).hint(DAMAGED)
            );
        }
        let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..n].copy_from_slice(bytes);
        self.make(PickleValue::Int(i64::from_le_bytes(wide)))
    }

    /// Pushes an object of the arena onto the stack.
    fn push(&mut self, id: Id) -> Result<()> {
        self.arena.budget.pay(size_of::<Id>())?;
        self.stack.push(id);
        Ok(())
    }

    /// Adds an object to the arena and pushes it.
    fn make(&mut self, value: PickleValue<'a>) -> Result<()> {
        let id = self.arena.add(value)?;
        self.push(id)
    }

    /// Pops an object above the innermost open MARK. Objects below this MARK belong to an outer container.
    fn pop(&mut self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(underflow());
        }
        self.stack.pop().ok_or_else(underflow)
    }

    /// Pops `n` objects above the innermost open MARK, in the order in which they were pushed.
    fn pop_many(&mut self, n: usize) -> Result<Vec<Id>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(n).filter(|&from| from >= floor).ok_or_else(underflow)?;
        Ok(self.stack.split_off(from))
    }

    /// Pops all objects above the innermost open MARK, and the MARK.
    fn pop_to_mark(&mut self) -> Result<Vec<Id>> {
        let from = self.marks.pop().ok_or_else(underflow)?;
        Ok(self.stack.split_off(from))
    }

    fn top(&self) -> Result<Id> {
        self.stack.last().copied().ok_or_else(underflow)
    }

    /// Stores the object on top of the stack in the memo, under the number `slot`.
    fn put(&mut self, slot: u32) -> Result<()> {
        let top = self.top()?;
        self.arena.budget.pay(MEMO_BYTES)?;
        self.memo.insert(slot, top);
        Ok(())
    }

    /// Pushes the memo's object number `slot`.
    fn get(&mut self, slot: u32) -> Result<()> {
        let id = *self
            .memo
            .get(&slot)
            .ok_or_else(|| Error::file(format!("the pickle refers to its object {slot}, which does not exist")).hint(DAMAGED))?;
        self.push(id)
    }

    /// Pushes the value of a global that a checkpoint may use.
    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let global = objects::global(module, name)?;
        self.make(global)
    }

    /// Appends objects to the list on top of the stack.
    fn append(&mut self, items: Vec<Id>) -> Result<()> {
        let list = self.top()?;
        self.arena.append(list, items)
    }

    /// Adds keys and values to the dictionary on top of the stack.
    fn set_items(&mut self, items: Vec<Id>) -> Result<()> {
        let dict = self.top()?;
        self.arena.set_items(dict, items)
    }
}

fn underflow() -> Error {
    Error::file("the pickle uses an object that it has not made").hint(DAMAGED)
}

#[cfg(test)]
mod tests;
