//! Tables of statistics: one file per GPU, one line per kernel.

use super::statistics::Statistics;
use std::collections::BTreeMap;
use std::path::Path;

/// A number that differs from the table's number by at most this share counts as equal.
const TOLERANCE: f64 = 0.15;

/// A column of a table.
struct Column {
    name: &'static str,
    get: fn(&Statistics) -> u64,
    judge: Judge,
}

enum Judge {
    LessIsBetter,
    MoreIsBetter,
    /// The number is in the table only for people. The number is not compared.
    Ignored,
}

const COLUMNS: [Column; 6] = [
    Column { name: "registers", get: |s| s.registers, judge: Judge::LessIsBetter },
    Column { name: "occupancy", get: |s| s.occupancy, judge: Judge::MoreIsBetter },
    Column { name: "workgroup-memory", get: |s| s.workgroup_memory, judge: Judge::LessIsBetter },
    Column { name: "code", get: |s| s.code, judge: Judge::LessIsBetter },
    Column { name: "cycles", get: |s| s.cycles, judge: Judge::Ignored },
    Column { name: "spilled", get: |s| s.spilled, judge: Judge::LessIsBetter },
];

/// Writes a table.
pub fn text(version: &str, rows: &[(String, Statistics)]) -> String {
    let header = COLUMNS.map(|column| column.name).join(" ");
    let line = |(name, statistics): &(String, Statistics)| {
        let numbers = COLUMNS.map(|column| format!("{:>5}", (column.get)(statistics))).join(" ");
        let loads: Vec<String> = statistics.loads_in_flight.iter().map(u64::to_string).collect();
        format!("{numbers} {:>5} | {name}\n", if loads.is_empty() { "-".into() } else { loads.join("/") })
    };
    format!("# {version}\n# {header} loads-in-flight | kernel\n") + &rows.iter().map(line).collect::<String>()
}

/// Returns one line for each fault: a number that is worse than in the table, or a kernel that only the table or only `rows` has. Prints the
/// numbers that are better. If another driver made the table, prints SKIPPED and returns no line.
pub fn compare(path: &Path, version: &str, rows: &[(String, Statistics)]) -> Vec<String> {
    let Ok(text) = std::fs::read_to_string(path) else {
        return vec![format!("{} is missing: write it with --bless", path.display())];
    };
    let made_with = text.lines().next().unwrap_or("").trim_start_matches("# ");
    if made_with != version {
        println!("SKIPPED comparison: {} is of {made_with}, this driver is {version}", path.display());
        return Vec::new();
    }
    let mut known: BTreeMap<&str, Vec<u64>> = text.lines().filter_map(row).collect();
    let mut wrong = Vec::new();
    for (name, statistics) in rows {
        let Some(before) = known.remove(name.as_str()) else {
            wrong.push(format!("{name}: not in {}: write the table with --bless", path.display()));
            continue;
        };
        for (column, before) in COLUMNS.iter().zip(before) {
            let (what, now) = (column.name, (column.get)(statistics));
            match column.change(before, now) {
                Change::Same => (),
                Change::Better => println!("better: {name}: {what} {before} -> {now}"),
                Change::Worse => wrong.push(format!("{name}: {what} {before} -> {now}: mend the kernel, or accept it with --bless")),
            }
        }
    }
    wrong.extend(known.keys().map(|name| format!("{name}: in {}, but no longer used: write the table with --bless", path.display())));
    wrong
}

enum Change {
    Same,
    Better,
    Worse,
}

impl Column {
    fn change(&self, before: u64, now: u64) -> Change {
        let is_same = now.abs_diff(before) as f64 <= before as f64 * TOLERANCE;
        match self.judge {
            Judge::Ignored => Change::Same,
            _ if is_same => Change::Same,
            Judge::LessIsBetter if now < before => Change::Better,
            Judge::MoreIsBetter if now > before => Change::Better,
            _ => Change::Worse,
        }
    }
}

fn row(line: &str) -> Option<(&str, Vec<u64>)> {
    let (numbers, name) = line.split_once(" | ")?;
    let numbers: Option<Vec<u64>> = numbers.split_whitespace().take(COLUMNS.len()).map(|n| n.parse().ok()).collect();
    Some((name, numbers.filter(|n| n.len() == COLUMNS.len())?))
}
