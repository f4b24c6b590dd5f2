//! `mcc ops` and `mcc targets`.

use std::fmt::Write as _;
use std::process::ExitCode;

use mcc_support::Result;

use crate::{ops, targets};

pub fn ops() -> Result<ExitCode> {
    let mut defs: Vec<_> = ops::all().collect();
    defs.sort_by_key(|def| (def.domain, def.name));
    let mut out = format!("{:<28}versions\n", "operator");
    for def in defs {
        let versions: Vec<String> = def.since.iter().map(i64::to_string).collect();
        let _ = writeln!(out, "{:<28}{}", def.full_name(), versions.join(", "));
    }
    super::print(&out);
    Ok(ExitCode::SUCCESS)
}

pub fn targets() -> Result<ExitCode> {
    super::print(&targets::list());
    Ok(ExitCode::SUCCESS)
}
