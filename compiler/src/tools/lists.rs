//! `mcc ops` and `mcc targets`.

use std::fmt::Write as _;
use std::process::ExitCode;

use mcc_support::Result;

use crate::{ops, targets};

pub fn ops() -> Result<ExitCode> {
    let mut defs: Vec<_> = ops::all().map(|def| (def.domain, def.full_name(), def.since)).collect();
    defs.extend(ops::CONTROL.iter().map(|def| ("", def.name.to_string(), def.since)));
    defs.sort();
    let width = defs.iter().map(|(_, name, _)| name.len()).max().unwrap_or_default() + 2;
    let mut out = format!("{:<width$}versions\n", "operator");
    for (_, name, since) in defs {
        let versions: Vec<String> = since.iter().map(i64::to_string).collect();
        let _ = writeln!(out, "{name:<width$}{}", versions.join(", "));
    }
    super::print(&out);
    Ok(ExitCode::SUCCESS)
}

pub fn targets() -> Result<ExitCode> {
    super::print(&targets::list());
    Ok(ExitCode::SUCCESS)
}
