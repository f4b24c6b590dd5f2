//! `mcc opt`: passes on a graph in its text form.

use std::fs;
use std::process::ExitCode;

use mcc_support::{Error, Result};

use crate::graph::text;
use crate::passes::{self, CANONICAL, DEPLOYMENT, Pass};

use super::args::OptArgs;

pub fn opt(args: &OptArgs) -> Result<ExitCode> {
    let place = || format!("in file '{}'", args.file.display());
    let text =
        fs::read_to_string(&args.file).map_err(|error| Error::new(format!("cannot read the file: {error}")).context(place()))?;
    let mut graph = text::parse(&text).map_err(|error| error.context(place()))?;
    let mut options = passes::Options { fuel: args.fuel, verify: true, ..passes::Options::default() };
    for name in &args.run {
        graph = passes::run(graph, &list(name)?, &mut options);
    }
    super::print(&graph.to_string());
    Ok(ExitCode::SUCCESS)
}

fn list(name: &str) -> Result<Vec<&'static Pass>> {
    match name {
        "deployment" => Ok(DEPLOYMENT.to_vec()),
        "canonical" => Ok(CANONICAL.to_vec()),
        name => passes::find(name).map(|pass| vec![pass]).ok_or_else(|| {
            let names: Vec<&str> = DEPLOYMENT.iter().map(|pass| pass.name).collect();
            Error::new(format!("there is no pass '{name}'")).help(format!("passes are {}", names.join(", ")))
        }),
    }
}
