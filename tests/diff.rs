//! The values inside of a model are found and compared at every level, through rewrites, fusions and layouts.

use mcc::driver::{Options, Silent, Stage, compile};
use mcc::tools::Level;
use mcc::tools::diff::{Outcome, Row, Values, rows, values};
use mcc_tests::data;

const TOLERANCE: f64 = 1e-4;
const LEVELS: [Level; 4] = [Level::Graph, Level::Loops, Level::Kernel, Level::Machine];

fn options() -> Options {
    Options::new(data::folder().join("models/digits_mobilenet.onnx"))
}

/// What the graph as imported computes for an image.
fn reference(image: usize) -> Values {
    let compilation = compile(&Options { stop_after: Some(Stage::Import), ..options() }, &mut Silent).expect("it compiles");
    let specialization = &compilation.specializations()[0];
    values(&compilation, specialization, Level::Graph, &[data::digits().image(image)]).expect("an image")
}

fn compared(level: Level, fuel: Option<u64>, references: &[&Values]) -> Vec<Vec<Row>> {
    let compilation = compile(&Options { keep_values: true, fuel, ..options() }, &mut Silent).expect("it compiles");
    let specialization = &compilation.specializations()[0];
    let found = values(&compilation, specialization, level, &[data::digits().image(0)]).expect("an image");
    references.iter().map(|reference| rows(specialization, reference, &found)).collect()
}

fn count(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.is_compared()).count()
}

#[test]
fn values_are_found_at_every_level() {
    let (right, other) = (reference(0), reference(1));
    for level in LEVELS {
        let both = compared(level, None, &[&right, &other]);
        let wrong: Vec<&Row> = both[0].iter().filter(|row| row.is_wrong(TOLERANCE)).collect();
        assert!(wrong.is_empty(), "{level:?}: {wrong:?}");
        // Some layers are stored; the rest is fused into them, which the rows say.
        let rows = &both[0];
        assert!((10..rows.len() - 5).contains(&count(rows)), "{level:?}: {} of {}", count(rows), rows.len());
        assert!(rows.iter().any(|row| row.outcome == Outcome::NotStored));
        assert_eq!(rows.last().map(|row| row.value.name.as_str()), Some("logits"));
        // Of another image, all is wrong from the first layer on.
        let first = both[1].iter().find(|row| row.is_compared() && row.value.node.operator != "Constant");
        assert!(first.expect("some are compared").is_wrong(TOLERANCE), "{level:?}: {first:?}");
    }
    let stored = |fuel| count(&compared(Level::Machine, fuel, &[&right])[0]);
    assert!(stored(Some(0)) > stored(None), "without fusion more is stored");
}

/// Models of loops and branches, whose bodies have values of their own, and one whose values are all outputs.
#[test]
fn outputs_are_compared_through_control_flow() {
    for name in ["if_nested_captures_then_else", "loop_stops_on_condition", "elementwise_chain_every_value_is_output"] {
        let case = data::cases().into_iter().find(|case| case.name == name).expect("a case");
        let options = Options { keep_values: true, ..Options::new(case.model()) };
        let compilation = compile(&options, &mut Silent).expect("it compiles");
        let specialization = &compilation.specializations()[0];
        let example = case.example();
        let inputs: Vec<_> = specialization.graph().inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect();
        for level in LEVELS {
            let found = values(&compilation, specialization, level, &inputs).expect("inputs of the model");
            let rows = rows(specialization, &example.outputs, &found);
            assert_eq!(count(&rows), example.outputs.len(), "{name} at {level:?}: {rows:?}");
            assert!(rows.iter().all(|row| !row.is_wrong(TOLERANCE)), "{name} at {level:?}: {rows:?}");
        }
    }
}

#[test]
fn the_one_that_differs_is_named() {
    let mut reference = reference(0);
    let rows = compared(Level::Machine, None, &[&reference]).remove(0);
    let stored: Vec<&Row> = rows.iter().filter(|row| row.is_compared()).collect();
    let guilty = stored[stored.len() / 2].value.name.clone();
    let ty = reference[&guilty].ty().clone();
    reference.insert(guilty.clone(), mcc_support::Tensor::zeros(ty));
    let rows = compared(Level::Machine, None, &[&reference]).remove(0);
    let wrong: Vec<&str> = rows.iter().filter(|row| row.is_wrong(TOLERANCE)).map(|row| row.value.name.as_str()).collect();
    assert_eq!(wrong, [guilty.as_str()]);
}
