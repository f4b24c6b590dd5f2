//! `mcc check`: everything that stops a compile, and everything that is odd, all at once.

use std::process::ExitCode;

use mcc_support::error::NodeRef;
use mcc_support::{Error, Result};
use serde_json::{Map, Value, json};

use crate::driver::{self, Options, Silent};
use crate::import::{self, Warning, add_new};
use crate::onnx::Model;

use super::args::{CheckArgs, Format};
use super::{print, report};

/// What to do about a node for which the reason says nothing better.
const HELP: &str = "change the node in the program that wrote the model, or take it out and compute it outside";

#[derive(Debug, Default)]
struct Findings {
    errors: Vec<Error>,
    warnings: Vec<Warning>,
}

pub fn check(args: &CheckArgs) -> Result<ExitCode> {
    let findings = match args.build.options(&args.model, &args.target).and_then(|options| find(&options)) {
        Ok(findings) => findings,
        Err(error) => Findings { errors: vec![error], ..Findings::default() },
    };
    let path = args.model.display();
    match args.format {
        Format::Json => print(&format!("{:#}\n", json(&path.to_string(), &findings))),
        Format::Text => {
            grouped(&findings.errors).iter().for_each(report::error);
            findings.warnings.iter().for_each(|warning| report::warning(&warning.to_string()));
            let nodes = findings.errors.iter().filter(|error| error.node.is_some()).count();
            match findings.errors.len() {
                0 => print(&format!("{path}: can be compiled\n")),
                1 => report::note(&format!("{path}: cannot be compiled: 1 problem")),
                count => report::note(&format!("{path}: cannot be compiled: {count} problems, {nodes} of them in nodes")),
            }
        }
    }
    Ok(if findings.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find(options: &Options) -> Result<Findings> {
    let model = Model::open(&options.model)?;
    let mut findings = Findings::default();
    // Import goes on after an error; hardly anything that comes behind it can fail.
    for import in options.imports("check") {
        match import::import_all_errors(&model, &import) {
            Ok((_, warnings)) => add_new(&mut findings.warnings, warnings),
            Err(errors) => add_new(&mut findings.errors, errors.into_iter().map(with_help)),
        }
    }
    if findings.errors.is_empty() {
        findings.errors.extend(driver::compile(options, &mut Silent).err());
    }
    Ok(findings)
}

fn with_help(error: Error) -> Error {
    if error.node.is_some() { error.help(HELP) } else { error }
}

fn json(model: &str, findings: &Findings) -> Value {
    let errors = findings.errors.iter().map(|error| {
        let mut value = place(error.node.as_ref());
        value.insert("message".into(), json!(error.message));
        value.insert("context".into(), json!(error.context));
        value.insert("help".into(), json!(error.help));
        value
    });
    let warnings = findings.warnings.iter().map(|warning| {
        let mut value = place(warning.node.as_ref());
        value.insert("kind".into(), json!(warning.kind.name()));
        value.insert("message".into(), json!(warning.message));
        value
    });
    json!({
        "model": model,
        "can_be_compiled": findings.errors.is_empty(),
        "errors": errors.collect::<Vec<_>>(),
        "warnings": warnings.collect::<Vec<_>>(),
    })
}

/// The node, or nulls.
fn place(node: Option<&NodeRef>) -> Map<String, Value> {
    let value = json!({
        "node": node.map(|node| &node.name),
        "operator": node.map(|node| &node.operator),
        "opset": node.map(|node| node.opset),
    });
    let Value::Object(map) = value else { unreachable!("an object was made") };
    map
}

/// Errors that differ in their node only, as one error that names the nodes.
fn grouped(errors: &[Error]) -> Vec<Error> {
    let mut groups: Vec<(Error, Vec<String>)> = Vec::new();
    for error in errors {
        let rest = Error { node: None, ..error.clone() };
        let name = error.node.as_ref().map(|node| format!("'{}'", node.name));
        let kind = |error: &Error| error.node.as_ref().map(|node| (node.operator.clone(), node.opset));
        match groups.iter_mut().find(|(first, names)| {
            Error { node: None, ..first.clone() } == rest && kind(first) == kind(error) && !names.is_empty() && name.is_some()
        }) {
            Some((_, names)) => names.extend(name),
            None => groups.push((error.clone(), name.into_iter().collect())),
        }
    }
    let one = |(error, names): (Error, Vec<String>)| match (names.len(), &error.node) {
        (2.., Some(node)) => {
            let place = format!("in {} nodes ({}, opset {}): {}", names.len(), node.operator, node.opset, names.join(", "));
            Error { node: None, ..error }.context(place)
        }
        _ => error,
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
        assert_eq!(grouped[0].context, ["in 3 nodes (Foo, opset 17): '1', '3', '4'"]);
        assert_eq!(grouped[1], errors[1]);
    }
}
