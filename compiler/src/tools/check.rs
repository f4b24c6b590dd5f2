//! `mcc check`: everything that stops a compile, all at once.

use std::process::ExitCode;

use mcc_support::{Error, Result};

use crate::driver::{self, Silent};
use crate::import;
use crate::onnx::Model;

use super::args::CheckArgs;
use super::report;

pub fn check(args: &CheckArgs) -> Result<ExitCode> {
    let options = args.build.options(&args.model, "host")?;
    // Import goes on after an error; what comes behind it cannot fail.
    if let Err(errors) = import::import_all_errors(&Model::open(&options.model)?, &options.import) {
        grouped(&errors).iter().for_each(report::error);
        return Ok(ExitCode::FAILURE);
    }
    let compilation = driver::compile(&options, &mut Silent)?;
    compilation.warnings.iter().for_each(|warning| report::warning(warning));
    super::print(&format!("{}: can be compiled\n", args.model.display()));
    Ok(ExitCode::SUCCESS)
}

/// Errors that differ in their node only, as one error that names the nodes.
fn grouped(errors: &[Error]) -> Vec<Error> {
    const NAMED: usize = 5;
    let mut groups: Vec<(Error, Vec<String>)> = Vec::new();
    for error in errors {
        let rest = Error { node: None, ..error.clone() };
        let name = error.node.as_ref().map(|node| format!("'{}'", node.name));
        match groups
            .iter_mut()
            .find(|(first, names)| Error { node: None, ..first.clone() } == rest && !names.is_empty() && name.is_some())
        {
            Some((_, names)) => names.extend(name),
            None => groups.push((error.clone(), name.into_iter().collect())),
        }
    }
    let one = |(error, names): (Error, Vec<String>)| match names.len() {
        0 | 1 => error,
        count => {
            let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
            let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
            Error { node: None, ..error }.context(format!("in {count} nodes: {}{more}", first.join(", ")))
        }
    };
    groups.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use mcc_support::error::NodeRef;

    use super::*;

    #[test]
    fn errors_of_many_nodes_are_one() {
        let node = |name: &str| NodeRef { name: name.to_string(), operator: "Foo".to_string(), opset: 17 };
        let error = |message: &str, name: &str| Error::new(message).node(node(name));
        let errors = [error("a", "1"), error("b", "2"), error("a", "3"), Error::new("a"), Error::new("a"), error("a", "4")];
        let grouped = grouped(&errors);
        assert_eq!(grouped.len(), 4);
        assert_eq!(grouped[0].context, ["in 3 nodes: '1', '3', '4'"]);
        assert_eq!(grouped[1], errors[1]);
    }
}
