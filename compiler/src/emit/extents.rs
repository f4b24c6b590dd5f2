//! Which extents are known only at run time, where one object is for several sets of shapes: those in which the sets differ.

use mcc_support::Shape;

use super::model::Symbol;
use super::run::DimRange;
use super::tensor_names;

/// An input or output of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    pub name: String,
    /// Names that the model gives to dimensions; empty or shorter than the shape where it gives none.
    pub dim_names: Vec<Option<String>>,
    /// One for each set.
    pub shapes: Vec<Shape>,
}

/// The extents that the caller passes and those that a run answers, with their values in each set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extents {
    pub dims: Vec<Symbol>,
    pub counts: Vec<Symbol>,
    /// For each tensor the symbol of each dimension, as [`Port::symbols`](super::Port::symbols).
    pub inputs: Vec<Vec<Option<usize>>>,
    pub outputs: Vec<Vec<Option<usize>>>,
    /// For each set the extent of each of `dims` and of `counts`.
    pub dim_values: Vec<Vec<i64>>,
    pub count_values: Vec<Vec<i64>>,
}

/// A dimension of an input in which the sets differ is an extent that the caller passes; dimensions of one name and the same extents
/// are one. A dimension of an output that has the extents of such a one is the same, else the run answers it.
pub fn extents(model: &str, inputs: &[Tensor], outputs: &[Tensor]) -> Extents {
    let mut found: Vec<Found> = Vec::new();
    let inputs = inputs.iter().map(|tensor| tensor_symbols(tensor, &mut found, false)).collect();
    let dim_count = found.len();
    let outputs = outputs.iter().map(|tensor| tensor_symbols(tensor, &mut found, true)).collect();
    let (dims, counts) = found.split_at(dim_count);
    let sets = found.first().map_or(0, |found| found.values.len());
    let values = |found: &[Found]| (0..sets).map(|set| found.iter().map(|found| found.values[set]).collect()).collect();
    Extents {
        dims: symbols(model, "dim", dims),
        counts: symbols(model, "count", counts),
        inputs,
        outputs,
        dim_values: values(dims),
        count_values: values(counts),
    }
}

#[derive(Debug)]
struct Found {
    name: String,
    /// In each set.
    values: Vec<i64>,
}

/// Adds what is not known yet to `found`. With `any_name`, a symbol of another name will do.
fn tensor_symbols(tensor: &Tensor, found: &mut Vec<Found>, any_name: bool) -> Vec<Option<usize>> {
    let rank = tensor.shapes.first().map_or(0, Shape::rank);
    let symbols: Vec<Option<usize>> = (0..rank)
        .map(|axis| {
            let values: Vec<i64> = tensor.shapes.iter().map(|shape| shape.dims()[axis] as i64).collect();
            if values.iter().all(|value| *value == values[0]) {
                return None;
            }
            let declared = tensor.dim_names.get(axis).cloned().flatten();
            let name = declared.unwrap_or_else(|| format!("{}_{axis}", tensor.name));
            let same = found.iter().position(|found| found.name == name && found.values == values);
            let similar = || found.iter().position(|found| any_name && found.values == values);
            Some(same.or_else(similar).unwrap_or_else(|| {
                // One name may stand for different extents.
                let name = if found.iter().any(|found| found.name == name) { format!("{}_{axis}", tensor.name) } else { name };
                found.push(Found { name, values });
                found.len() - 1
            }))
        })
        .collect();
    if symbols.iter().any(Option::is_some) { symbols } else { Vec::new() }
}

fn symbols(model: &str, kind: &str, found: &[Found]) -> Vec<Symbol> {
    let c_names = tensor_names(model, kind, found.iter().map(|found| found.name.as_str()));
    let symbol = |(found, c_name): (&Found, String)| Symbol {
        name: found.name.clone(),
        c_name,
        range: DimRange {
            min: found.values.iter().copied().min().unwrap_or(0),
            max: found.values.iter().copied().max().unwrap_or(0),
        },
    };
    found.iter().zip(c_names).map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dim_names: &[&str], shapes: &[&[usize]]) -> Tensor {
        Tensor {
            name: name.to_string(),
            dim_names: dim_names.iter().map(|name| (!name.is_empty()).then(|| name.to_string())).collect(),
            shapes: shapes.iter().map(|shape| Shape::new(shape.to_vec())).collect(),
        }
    }

    #[test]
    fn sets_differ_in_extents() {
        let inputs = [
            tensor("x", &["n", "", "w"], &[&[1, 3, 160], &[1, 3, 320]]),
            tensor("y", &["w", "", ""], &[&[160, 3, 7], &[320, 3, 9]]),
            tensor("z", &["w"], &[&[5], &[6]]),
        ];
        let outputs = [tensor("o", &["", "t", "t"], &[&[160, 40, 7], &[320, 80, 9]]), tensor("p", &["n"], &[&[1], &[1]])];
        let extents = extents("net", &inputs, &outputs);
        let names = |symbols: &[Symbol]| symbols.iter().map(|symbol| symbol.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&extents.dims), ["w", "y_2", "z_0"]);
        assert_eq!(names(&extents.counts), ["t"]);
        assert_eq!(extents.inputs, [vec![None, None, Some(0)], vec![Some(0), None, Some(1)], vec![Some(2)]]);
        assert_eq!(extents.outputs, [vec![Some(0), Some(3), Some(1)], vec![]]);
        assert_eq!(extents.dim_values, [[160, 7, 5], [320, 9, 6]]);
        assert_eq!(extents.count_values, [[40], [80]]);
        assert_eq!(extents.dims[0].range, DimRange { min: 160, max: 320 });
    }
}
