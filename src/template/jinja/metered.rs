//! Compiles a template with checks between its instructions.
//!
//! minijinja, the template engine, limits only the number of instructions. Here, a check follows each instruction that makes a text or a list. A
//! check precedes each multiplication, because a multiplication with a too large result must not run. A check also precedes each assignment to a
//! namespace, because an assignment leaves no result for a later check. Jump instructions are changed to the new positions of their targets.

use super::environment::{ASSIGNED, COPIED, GUARD_MUL, MADE, STEP, TICK};
use super::limits::broken;
use super::scan;
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, Value};
use std::collections::BTreeMap;

/// Filters, functions and methods whose results share the values of their arguments. The results of all other functions contain new values.
const REFERRING: [&str; 27] = [
    "range",
    "list",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
    "sort",
    "unique",
    "reverse",
    "first",
    "last",
    "min",
    "max",
    "default",
    "d",
    "attr",
    "items",
    "keys",
    "values",
    "dictsort",
    "get",
    "chain",
    "zip",
    "groupby",
    "dict",
    "namespace",
    "safe",
];

/// A compiled template.
pub struct Code<'s> {
    pub instructions: Instructions<'s>,
    /// Always empty: templates with blocks are refused. minijinja needs the map.
    pub blocks: BTreeMap<&'s str, Instructions<'s>>,
}

/// Compiles a template.
///
/// # Errors
/// Fails if the source is not a template, exceeds a limit of `scan.rs` or refers to other templates.
pub fn compile<'s>(source: &'s str, name: &'s str, syntax: SyntaxConfig) -> Result<Code<'s>, Error> {
    scan::check(source, syntax.clone())?;
    let tree = parse(source, name, syntax)?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&tree);
    let (plain, blocks) = generator.finish();
    if !blocks.is_empty() {
        return Err(broken("blocks are not supported", None));
    }
    Ok(Code { instructions: metered(&plain, name, source)?, blocks })
}

/// Returns the instructions of `plain` with checks between them.
fn metered<'s>(plain: &Instructions<'s>, name: &'s str, source: &'s str) -> Result<Instructions<'s>, Error> {
    let old: Vec<&Instruction<'s>> = (0..).map_while(|at| plain.get(at)).collect();
    let mut parts = Vec::with_capacity(old.len());
    // The new position of each old instruction, and of the end.
    let mut moved = Vec::with_capacity(old.len() + 1);
    let mut at = 0;
    for &instruction in &old {
        let part = with_checks(instruction)?;
        moved.push(at);
        at += part.len() as u32;
        parts.push(part);
    }
    moved.push(at);
    let mut new = Instructions::new(name, source);
    for (at, part) in parts.into_iter().enumerate() {
        let line = plain.get_line(at as u32).unwrap_or(0);
        for instruction in part {
            new.add_with_line(relocated(instruction, &moved), u16::try_from(line).unwrap_or(u16::MAX));
        }
    }
    Ok(new)
}

/// Returns an instruction with the checks before and after it. Fails if the instruction is unsupported.
fn with_checks<'s>(instruction: &Instruction<'s>) -> Result<Vec<Instruction<'s>>, Error> {
    use Instruction as I;
    let this = instruction.clone();
    let made = |name: &str| if REFERRING.contains(&name) { check(MADE) } else { check(COPIED) };
    Ok(match instruction {
        // The formatter counts output, so raw text goes through the formatter.
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        // The check receives both factors as a pair.
        I::Mul => vec![I::BuildTuple(Some(2)), check(GUARD_MUL), I::UnpackList(2), I::Swap, this, check(MADE)],
        // The step is on top of the stack.
        I::Slice => vec![check(STEP), this, check(MADE)],
        I::Add | I::StringConcat | I::BuildMap(_) | I::BuildList(_) | I::BuildTuple(_) | I::EndCapture | I::CallObject(_) => {
            vec![this, check(MADE)]
        }
        I::CallMethod("cycle", Some(1)) => return Err(broken("cycle needs an argument", None)),
        I::PushAutoEscape => return Err(broken("HTML escapes are not supported", None)),
        I::ApplyFilter(name, ..) | I::CallFunction(name, _) | I::CallMethod(name, _) => vec![this, made(name)],
        // A macro is a closure that takes memory until the rendering ends.
        I::BuildMacro(..) => vec![this, check(MADE)],
        I::Iterate(_) => vec![this, check(TICK)],
        // The namespace is above the value on the stack.
        I::SetAttr(_) => vec![I::Swap, check(ASSIGNED), I::Swap, this],
        I::LoadBlocks | I::Include(_) | I::CallBlock(_) | I::ExportLocals | I::FastSuper => {
            return Err(broken("a template cannot include another template", None));
        }
        _ => vec![this],
    })
}

/// Returns an instruction that applies the filter `name` to one value. With the number `!0`, minijinja does not cache the filter.
fn check(name: &'static str) -> Instruction<'static> {
    Instruction::ApplyFilter(name, Some(1), !0)
}

/// Returns an instruction with new jump targets. `moved[i]` is the new position of the old instruction `i`.
fn relocated<'s>(instruction: Instruction<'s>, moved: &[u32]) -> Instruction<'s> {
    use Instruction as I;
    let to = |at: u32| moved[at as usize];
    match instruction {
        I::Iterate(at) => I::Iterate(to(at)),
        I::Jump(at) => I::Jump(to(at)),
        I::JumpIfFalse(at) => I::JumpIfFalse(to(at)),
        I::JumpIfFalseOrPop(at) => I::JumpIfFalseOrPop(to(at)),
        I::JumpIfTrueOrPop(at) => I::JumpIfTrueOrPop(to(at)),
        I::BuildMacro(name, at, flags) => I::BuildMacro(name, to(at), flags),
        other => other,
    }
}
