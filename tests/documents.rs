//! Documents that derive from the code.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use mcc::ops;

fn versions(since: &[i64]) -> String {
    since.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

fn inputs(places: &[usize]) -> String {
    places.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// `docs/operators.md`.
fn operators() -> String {
    let mut rows: Vec<_> = ops::all().map(|def| (def.domain, def.full_name(), def.since, def.shape_inputs)).collect();
    rows.extend(ops::CONTROL.iter().map(|def| ("", def.name.to_string(), def.since, def.shape_inputs)));
    rows.sort();
    let mut text = format!(
        "# Operators\n\n\
        The {} ONNX operators that mcc compiles. This page is made from the list in the code; `mcc ops` prints the same.\n\n\
        *Versions* are those of the operator's domain at which its meaning changed: a model of any opset from the first on is taken.\n\
        *Static inputs* are those, counted from 0, whose values decide shapes or the form of the computation: they must be constants,\n\
        follow from constants and shapes, or be given by `--constant NAME=VALUE`. Those that are extents (of Reshape, Expand, Tile, …)\n\
        may also follow from extents that a run is told, or have `--max-elements NAME=N,…` bound their elements. Functions that a model\n\
        defines are inlined.\n\n\
        Random numbers are those of Philox 2x32-10, from a key and a counter: the index of the element, and which node it is. A node\n\
        with a `seed` has its bits as key, so that nodes of one seed get equal numbers; others have a key of their own that follows\n\
        from the name of their first output. There is no state: every run, and every target, gives the same numbers, also in each\n\
        round of a loop.\n\n\
        | operator | versions | static inputs |\n|---|---|---|\n",
        rows.len()
    );
    for (_, name, since, shape_inputs) in rows {
        writeln!(text, "| {name} | {} | {} |", versions(since), inputs(shape_inputs)).expect("text grows");
    }
    text
}

#[test]
fn operators_are_listed_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
    if std::env::var_os("MCC_BLESS").is_some() {
        fs::write(&path, operators()).expect("the page can be written");
    }
    let page = fs::read_to_string(&path).expect("the page is committed");
    assert!(page == operators(), "docs/operators.md is not what the code says (MCC_BLESS=1 rewrites it)");
}
