//! Compiles a template with checks between its instructions.
//!
//! The engine's own limit counts instructions only. A check follows each instruction that makes a text or a list; others come before
//! what must not be tried (`*`) or cannot be seen later (an assignment to a namespace). Jumps are moved along.

use super::environment::{ASSIGNED, COPIED, GUARD_MUL, MADE, TICK};
use super::limits::broken;
use super::scan;
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, Value};
use std::collections::BTreeMap;

/// Names of filters, functions and methods whose result is a list of what they were given. The lists of others are full of new values.
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

/// A template without blocks, ready to be run.
pub struct Code<'s> {
    pub instructions: Instructions<'s>,
    /// None: templates with blocks are refused.
    pub blocks: BTreeMap<&'s str, Instructions<'s>>,
}

/// # Errors
/// Where the source is no template, past a bound, or wants other templates.
pub fn compile<'s>(source: &'s str, name: &'s str, syntax: SyntaxConfig) -> Result<Code<'s>, Error> {
    scan::check(source, syntax.clone())?;
    let tree = parse(source, name, syntax)?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&tree);
    let (plain, blocks) = generator.finish();
    if !blocks.is_empty() {
        return Err(broken("expected a template on its own, found blocks", None));
    }
    Ok(Code { instructions: metered(&plain, name, source)?, blocks })
}

fn metered<'s>(plain: &Instructions<'s>, name: &'s str, source: &'s str) -> Result<Instructions<'s>, Error> {
    let old: Vec<&Instruction<'s>> = (0..).map_while(|at| plain.get(at)).collect();
    let mut parts = Vec::with_capacity(old.len());
    // Where each old instruction went, and the end.
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

/// An instruction and the checks around it.
fn with_checks<'s>(instruction: &Instruction<'s>) -> Result<Vec<Instruction<'s>>, Error> {
    use Instruction as I;
    let this = instruction.clone();
    let made = |name: &str| if REFERRING.contains(&name) { check(MADE) } else { check(COPIED) };
    Ok(match instruction {
        // What is written goes through the formatter, which counts it.
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        // A pair, so that the check sees both factors.
        I::Mul => vec![I::BuildTuple(Some(2)), check(GUARD_MUL), I::UnpackList(2), I::Swap, this, check(MADE)],
        I::Add | I::StringConcat | I::Slice | I::BuildMap(_) | I::BuildList(_) | I::BuildTuple(_) | I::EndCapture | I::CallObject(_) => {
            vec![this, check(MADE)]
        }
        I::CallMethod("cycle", Some(1)) => return Err(broken("expected what cycle goes through, found nothing", None)),
        I::PushAutoEscape => return Err(broken("expected a template of plain text, found one that escapes for HTML", None)),
        I::ApplyFilter(name, ..) | I::CallFunction(name, _) | I::CallMethod(name, _) => vec![this, made(name)],
        // Each is a closure that stays until the end.
        I::BuildMacro(..) => vec![this, check(MADE)],
        I::Iterate(_) => vec![this, check(TICK)],
        // The namespace is above the value.
        I::SetAttr(_) => vec![I::Swap, check(ASSIGNED), I::Swap, this],
        I::LoadBlocks | I::Include(_) | I::CallBlock(_) | I::ExportLocals | I::FastSuper => {
            return Err(broken("expected a template on its own, found one that includes another", None));
        }
        _ => vec![this],
    })
}

/// A filter of one value. It is not among the few whose places the engine remembers.
fn check(name: &'static str) -> Instruction<'static> {
    Instruction::ApplyFilter(name, Some(1), !0)
}

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
