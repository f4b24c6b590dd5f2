//! The test data is there, complete, and means what the helpers say.

use mcc_support::DType;
use mcc_tests::compare::{Tolerance, compare, largest};
use mcc_tests::data;

#[test]
fn node_tests_are_complete() {
    let tests = data::node_tests();
    assert_eq!(tests.len(), 1765);
    for test in &tests {
        assert!(test.model.exists() && !test.sets.is_empty(), "{}", test.name);
        assert!(test.sets.iter().all(|set| !set.outputs.is_empty()), "{}", test.name);
    }
}

/// The others hold sequences, optional values, strings, floats of 8 bits and fewer, integers of 2 bits.
#[test]
fn tensors_of_node_tests_are_read() {
    let sets: Vec<_> = data::node_tests().into_iter().flat_map(|test| test.sets).collect();
    let files: Vec<_> = sets.iter().flat_map(|set| set.inputs.iter().chain(&set.outputs)).collect();
    assert_eq!(files.len(), 6029);
    let read = files.iter().filter(|path| data::node_test_tensor(path).is_ok()).count();
    assert!(read >= 5739, "{read} of {}", files.len());
}

#[test]
fn cases_have_models_and_values() {
    let cases = data::cases();
    assert_eq!(cases.len(), 216);
    for case in &cases {
        assert!(case.model().exists(), "{}", case.name);
        let example = case.example();
        let has_values = matches!(case.expected, data::Expected::Values { .. }) || case.also_right.is_some();
        assert!(!has_values || !example.outputs.is_empty(), "{}", case.name);
    }
}

#[test]
fn references_have_inputs_and_outputs() {
    let references = data::references();
    assert_eq!(references.len(), 30);
    assert_eq!(references.iter().filter(|reference| !reference.emulated).count(), 6);
    for reference in &references {
        assert!(reference.model.exists(), "{}", reference.name);
        assert_eq!(reference.examples.len(), 2, "{}", reference.name);
        for example in &reference.examples {
            assert!(!example.inputs.is_empty() && !example.outputs.is_empty(), "{}", reference.name);
        }
    }
}

#[test]
fn digits_are_those_of_mnist() {
    let (few, all) = (data::digits(), data::mnist());
    assert_eq!((few.labels.len(), all.labels.len()), (20, 10_000));
    // The first twelve were taken in the order of the test set.
    for index in 0..12 {
        assert_eq!(few.labels[index], all.labels[index]);
        compare(&few.image(index), &all.image(index), Tolerance::EXACT).unwrap();
    }
    assert_eq!(few.image(0).dtype(), DType::F32);
    for reference in data::references().iter().filter(|reference| reference.name.starts_with("digits_")) {
        for (index, example) in reference.examples.iter().enumerate() {
            compare(&example.inputs["image"], &few.image(index), Tolerance::EXACT).unwrap();
            assert_eq!(largest(&example.outputs["logits"]).0, usize::from(few.labels[index]), "{}", reference.name);
        }
    }
}
