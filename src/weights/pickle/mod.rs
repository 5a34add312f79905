//! The restricted pickle reader: a machine for the few opcodes that torch writes, which builds data and calls nothing.
//!
//! Objects live in an arena and refer to each other by index, so neither parsing nor dropping recurses, and what a pickle
//! names twice exists once. All that is kept is paid for from one budget of bytes, copies too. Whatever is not on the list is
//! refused by name. Knows no files.

mod objects;

pub(super) use objects::{Contents, Named};

use crate::error::{Error, Result};
use objects::{Arena, Id, Value};
use std::collections::HashMap;

/// Real checkpoints nest five deep.
const MAX_DEPTH: usize = 256;
const MAX_TEXT_BYTES: usize = 1 << 16;
const MAX_PROTOCOL: u8 = 5;
/// A remembered object: its number, its index, and the place of both in the table.
const MEMO_BYTES: usize = 16;

/// Reads one pickle and lists the tensors of its dictionary.
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
    /// Heights of the stack at each open MARK.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    arena: Arena<'a>,
}

impl<'a> Machine<'a> {
    /// One opcode; the finished object at STOP.
    fn step(&mut self) -> Result<Option<Id>> {
        match self.byte()? {
            b'.' => return self.pop().map(Some),
            0x80 => match self.byte()? {
                0..=MAX_PROTOCOL => {}
                p => return Err(Error::file(format!("expected pickle protocol {MAX_PROTOCOL} or lower, found {p}"))),
            },
            0x95 => drop(self.take(8)?), // FRAME: a length, only of use to who reads from a socket
            b'(' => {
                if self.marks.len() >= MAX_DEPTH {
                    return Err(Error::file(format!("refused: the pickle nests deeper than {MAX_DEPTH}")));
                }
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' | 0x88 | 0x89 => self.make(Value::Other)?,
            b'J' => {
                let n = i32::from_le_bytes(self.array()?);
                self.make(Value::Int(n.into()))?;
            }
            b'K' => {
                let n = self.byte()?;
                self.make(Value::Int(n.into()))?;
            }
            b'M' => {
                let n = u16::from_le_bytes(self.array()?);
                self.make(Value::Int(n.into()))?;
            }
            0x8a => self.long()?,
            b'G' => {
                self.take(8)?;
                self.make(Value::Other)?;
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
                self.make(Value::Other)?;
            }
            b')' => self.make(Value::Tuple(Vec::new()))?,
            b']' => self.make(Value::List(Vec::new()))?,
            b'}' => self.make(Value::Dict(Vec::new()))?,
            b't' => {
                let items = self.pop_to_mark()?;
                self.make(Value::Tuple(items))?;
            }
            n @ 0x85..=0x87 => {
                let items = self.pop_many(usize::from(n - 0x84))?;
                self.make(Value::Tuple(items))?;
            }
            b'l' => {
                let items = self.pop_to_mark()?;
                self.make(Value::List(items))?;
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                self.make(Value::Dict(Vec::new()))?;
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
            // BUILD sets attributes, of a state dict its `_metadata`: nothing that we read.
            b'b' => drop(self.pop()?),
            other => {
                return Err(Error::file(format!(
                    "refused: the pickle uses opcode 0x{other:02x}, which no checkpoint needs; nothing was executed"
                )));
            }
        }
        Ok(None)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..n).ok_or_else(|| Error::file(format!("expected {n} more bytes of pickle, found {}", rest.len())))?;
        self.at += n;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take returns as many bytes as asked"))
    }

    fn text(&mut self, n: u64) -> Result<()> {
        if n > MAX_TEXT_BYTES as u64 {
            return Err(Error::file(format!("expected a text of at most {MAX_TEXT_BYTES} bytes, found {n}")));
        }
        let bytes = self.take(n as usize)?;
        let text = std::str::from_utf8(bytes).map_err(|_| Error::file("expected a text in UTF-8, found other bytes"))?;
        self.make(Value::Text(text))
    }

    /// A global's module or name: the bytes up to the end of a line.
    fn line(&mut self) -> Result<&'a str> {
        let rest = &self.bytes[self.at..];
        let end = rest
            .iter()
            .take(256)
            .position(|&b| b == b'\n')
            .ok_or_else(|| Error::file("expected the name of a global in a line, found no end of it"))?;
        let line = self.take(end)?;
        self.at += 1;
        std::str::from_utf8(line).map_err(|_| Error::file("expected the name of a global in UTF-8, found other bytes"))
    }

    /// A little-endian two's complement integer of any length; ours must fit 64 bits.
    fn long(&mut self) -> Result<()> {
        let n = usize::from(self.byte()?);
        let bytes = self.take(n)?;
        if n > 8 {
            return Err(Error::file(format!("expected an integer of at most 8 bytes, found {n}")));
        }
        let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..n].copy_from_slice(bytes);
        self.make(Value::Int(i64::from_le_bytes(wide)))
    }

    fn push(&mut self, id: Id) -> Result<()> {
        self.arena.budget.pay(size_of::<Id>())?;
        self.stack.push(id);
        Ok(())
    }

    fn make(&mut self, value: Value<'a>) -> Result<()> {
        let id = self.arena.add(value)?;
        self.push(id)
    }

    /// Objects above the innermost open MARK only: what lies below belongs to an outer object.
    fn pop(&mut self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(underflow());
        }
        self.stack.pop().ok_or_else(underflow)
    }

    fn pop_many(&mut self, n: usize) -> Result<Vec<Id>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(n).filter(|&from| from >= floor).ok_or_else(underflow)?;
        Ok(self.stack.split_off(from))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>> {
        let from = self.marks.pop().ok_or_else(underflow)?;
        Ok(self.stack.split_off(from))
    }

    fn top(&self) -> Result<Id> {
        self.stack.last().copied().ok_or_else(underflow)
    }

    fn put(&mut self, slot: u32) -> Result<()> {
        let top = self.top()?;
        self.arena.budget.pay(MEMO_BYTES)?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn get(&mut self, slot: u32) -> Result<()> {
        let id = *self.memo.get(&slot).ok_or_else(|| Error::file(format!("the pickle refers to object {slot}, which it has not made")))?;
        self.push(id)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let global = objects::global(module, name)?;
        self.make(global)
    }

    fn append(&mut self, items: Vec<Id>) -> Result<()> {
        let list = self.top()?;
        self.arena.append(list, items)
    }

    fn set_items(&mut self, items: Vec<Id>) -> Result<()> {
        let dict = self.top()?;
        self.arena.set_items(dict, items)
    }
}

fn underflow() -> Error {
    Error::file("the pickle asks for more objects than it has made")
}

#[cfg(test)]
mod tests;
