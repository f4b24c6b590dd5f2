//! Decisions that do not fit the program are the user's errors, and change nothing.

use std::collections::BTreeMap;

use super::realize;
use crate::decisions::{Decisions, Fusion, KernelDecision, Layout, Winograd};
use crate::loops::Program;
use crate::loops::text::parse;

/// Rows: their maximum, the differences from it, and the sums of those; a product that reads the differences again and again.
const ROWS: &str = r#"program "rows" {
  buffer @x : f32[4,8] input 0
  buffer @m : f32[4] temporary
  buffer @d : f32[4,8] temporary
  buffer @s : f32[4] output 0
  buffer @p : f32[4,4] output 1
  input "x" @x
  output "s" @s
  output "p" @p
  kernel @k0_max (i: spatial 4, j: reduce 8) {
    var %a0 : f32
    for i {
      %a0 = f32(0xff800000)
      for j {
        %a0 = max(%a0, @x[i, j])
      }
      @m[i] = %a0
    }
  }
  kernel @k1_sub (i: spatial 4, j: spatial 8) {
    for i {
      for j {
        @d[i, j] = @x[i, j] - @m[i]
      }
    }
  }
  kernel @k2_sum (i: spatial 4, j: reduce 8) {
    var %a0 : f32
    for i {
      %a0 = 0.0
      for j {
        %a0 = %a0 + @d[i, j]
      }
      @s[i] = %a0
    }
  }
  kernel @k3_product (a: spatial 4, b: spatial 4, j: reduce 8) {
    var %a0 : f32
    for a {
      for b {
        %a0 = 0.0
        for j {
          %a0 = %a0 + @d[a, j] * @d[b, j]
        }
        @p[a, b] = %a0
      }
    }
  }
}
"#;

fn rows() -> Program {
    parse(ROWS).unwrap()
}

fn in_order(fusions: Vec<Fusion>, order: &[&str]) -> Decisions {
    Decisions { fusions, order: order.iter().map(|&name| name.to_owned()).collect(), ..Decisions::default() }
}

const ORDER: [&str; 4] = ["k0_max", "k1_sub", "k2_sum", "k3_product"];

#[test]
fn fusions_that_would_change_results_are_refused() {
    let pair = |producer: &str, consumer: &str| (producer.to_owned(), consumer.to_owned());
    let inline = |(producer, consumer)| Fusion::Inline { producer, consumer };
    let epilogue = |(producer, consumer)| Fusion::Epilogue { producer, consumer };
    let merge = |(producer, consumer), depth| Fusion::Merge { producer, consumer, depth };
    for (fusion, expected) in [
        (inline(pair("k0_max", "k1_sub")), "'k0_max' is not elementwise"),
        (inline(pair("k1_sub", "k0_max")), "'k0_max' does not read what 'k1_sub' writes"),
        (inline(pair("k9", "k1_sub")), "there is no kernel 'k9'"),
        (epilogue(pair("k0_max", "k1_sub")), "does not read each element of 'k0_max' once"),
        (epilogue(pair("k1_sub", "k2_sum")), "'k2_sum' is not elementwise"),
        (merge(pair("k0_max", "k1_sub"), 2), "have 1 outer loops in common"),
        (merge(pair("k0_max", "k2_sum"), 1), "another kernel has to run between"),
        (merge(pair("k1_sub", "k3_product"), 1), "have 0 outer loops in common"),
        (Fusion::Interior { producer: "k0_max".into(), consumer: "k1_sub".into() }, "does not just pad"),
        (Fusion::Redirect { from: "d".into(), to: "m".into() }, "does not store to 'm' in one place"),
        (Fusion::Redirect { from: "s".into(), to: "d".into() }, "'s' has to stay"),
        (Fusion::Distribute { from: "d".into(), consumer: "k2_sum".into() }, "'k2_sum' is not elementwise"),
    ] {
        let told = format!("{fusion}");
        let error = realize(&rows(), &in_order(vec![fusion], &ORDER)).expect_err(&told).to_string();
        assert!(error.contains(expected) && error.contains(&told), "{told}: {error}");
    }
}

#[test]
fn decisions_about_what_is_not_there_are_refused() {
    let good = in_order(Vec::new(), &ORDER);
    realize(&rows(), &good).unwrap();
    let layouts = |name: &str, layout| Decisions { layouts: BTreeMap::from([(name.to_owned(), layout)]), ..good.clone() };
    let kernels = BTreeMap::from([("k9".to_owned(), KernelDecision::default())]);
    let twice = Layout { coordinates: [Layout::row_major(2).coordinates, Layout::row_major(1).coordinates].concat() };
    for (decisions, expected) in [
        (in_order(Vec::new(), &ORDER[..3]), "the order names 3 of 4 kernels"),
        (in_order(Vec::new(), &["k0_max", "k0_max", "k1_sub", "k2_sum"]), "twice, or it is not there"),
        (in_order(Vec::new(), &["k1_sub", "k0_max", "k2_sum", "k3_product"]), "'k1_sub' before what it reads, 'm', is written"),
        (layouts("q", Layout::row_major(2)), "buffer 'q', which is not there"),
        (layouts("s", Layout::row_major(0)), "the caller's"),
        (layouts("d", Layout::row_major(1)), "dimension 1 has no outermost coordinate"),
        (layouts("d", twice), "the coordinates of dimension 0 do not join"),
        (Decisions { kernels, ..good.clone() }, "kernel 'k9', which is not there"),
    ] {
        let error = realize(&rows(), &decisions).expect_err(expected).to_string();
        assert!(error.contains(expected), "wanted '{expected}', found '{error}'");
    }
}

/// A loop that doubles a value and joins halves, and a branch.
const REGIONS: &str = r#"program "regions" {
  buffer @x : f32[2] input 0
  buffer @c : bool[] input 1
  buffer @y : f32[4] output 0
  buffer @z : f32[2] output 1
  buffer @round : i64[] shared
  buffer @go : bool[] shared
  buffer @v : f32[2] shared
  buffer @w : f32[2] shared
  buffer @j : f32[4] temporary
  buffer @k : f32[4] shared
  buffer @r : f32[2] shared
  input "x" @x
  input "c" @c
  output "y" @y
  output "z" @z
  kernel @k0_round () { @round[] = 0 }
  kernel @k1_go () { @go[] = true }
  kernel @k2_carry (i: spatial 2) { for i { @v[i] = @x[i] } }
  while @go {
    kernel @k3_add (i: spatial 2) { for i { @w[i] = @v[i] + @v[i] } }
    kernel @k4_concat (i: spatial 2) { for i { @j[i] = @v[i] } }
    kernel @k5_concat (i: spatial 2) { for i { @j[i + 2] = @w[i] } }
    kernel @k6_neg (i: spatial 4) { for i { @k[i] = neg(@j[i]) } }
    latch kernel @k7_go () { @go[] = lt(@round[] + 1, 3) }
    latch kernel @k8_carry (i: spatial 2) { for i { @v[i] = @w[i] } }
    latch kernel @k9_round () { @round[] = @round[] + 1 }
  }
  if @c {
    kernel @ka_copy (i: spatial 2) { for i { @r[i] = @v[i] } }
    kernel @kb_add (i: spatial 2) { for i { @z[i] = @r[i] + @r[i] } }
  }
  unless @c {
    kernel @kc_copy (i: spatial 2) { for i { @r[i] = neg(@v[i]) } }
    kernel @kd_copy (i: spatial 2) { for i { @z[i] = @r[i] } }
  }
  kernel @ke_copy (i: spatial 4) { for i { @y[i] = @k[i] } }
}
"#;

#[test]
fn orders_that_would_change_what_loops_compute_are_refused() {
    let program = parse(REGIONS).unwrap();
    crate::loops::verify::verify(&program).unwrap();
    let good: Vec<&str> = program.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    realize(&program, &in_order(Vec::new(), &good)).unwrap();
    let swapped = |a: &str, b: &str| {
        let place = |name: &str| good.iter().position(|other| *other == name).expect("a kernel");
        let mut order = good.clone();
        order.swap(place(a), place(b));
        order
    };
    for (a, b, expected) in [
        ("k7_go", "k9_round", "in another order"),
        ("k7_go", "k8_carry", "in another order"),
        ("k5_concat", "k6_neg", "'k6_neg' before what it reads, 'j', is written"),
        ("k6_neg", "k7_go", "behind the latches"),
        ("ka_copy", "kb_add", "'kb_add' before what it reads, 'r', is written"),
        ("k2_carry", "k3_add", "'k3_add' before what it reads, 'v', is written"),
        ("ka_copy", "kc_copy", "'kb_add' before what it reads, 'r', is written"),
        ("k9_round", "ke_copy", "stand apart"),
    ] {
        let error = realize(&program, &in_order(Vec::new(), &swapped(a, b))).expect_err(a).to_string();
        assert!(error.contains(expected), "{a} and {b}: wanted '{expected}', found '{error}'");
    }
}

/// Two filters of 3 × 3 on a map of two channels: 5 × 6 results.
fn convolution(x: &str, weights: &str) -> Program {
    let numbers = (0..36).map(|number| format!("{number}.0")).collect::<Vec<_>>().join(", ");
    let text = format!(
        r#"program "convolution" {{
  buffer @x : f32[2,7,8] input 0
  buffer @w : f32[2,2,3,3] constant [{numbers}]
  buffer @y : f32[2,5,6] output 0
  input "x" @x
  output "y" @y
  kernel @k0_conv (m: spatial 2, y: spatial 5, x: spatial 6, c: reduce 2, ky: reduce 3, kx: reduce 3) {{
    var %a0 : f32
    for m {{ for y {{ for x {{
      %a0 = 0.0
      for c {{ for ky {{ for kx {{ %a0 = %a0 + @x[{x}] * @w[{weights}] }} }} }}
      @y[m, y, x] = %a0
    }} }} }}
  }}
}}
"#
    );
    parse(&text).unwrap()
}

#[test]
fn only_such_convolutions_are_transformed() {
    let plain = convolution("c, y + ky, x + kx", "m, c, ky, kx");
    let transform = |name: &str, outputs, rows| {
        let winograd = BTreeMap::from([(name.to_owned(), Winograd { outputs, rows })]);
        Decisions { winograd, ..in_order(Vec::new(), &["k0_conv"]) }
    };
    for (outputs, rows) in [(2, 1), (2, 3), (4, 1), (4, 2)] {
        realize(&plain, &transform("k0_conv", outputs, rows)).unwrap();
    }
    for (program, decisions, expected) in [
        (&plain, transform("k9", 2, 1), "no kernel 'k9'"),
        (&plain, transform("k0_conv", 3, 1), "no transform for 3 × 3"),
        (&plain, transform("k0_conv", 2, 2), "3 rows are not in groups of 2"),
        (&plain, transform("k0_conv", 2, 0), "3 rows are not in groups of 0"),
        (&convolution("c, y + ky, x", "m, c, ky, kx"), transform("k0_conv", 2, 1), "no convolution"),
        (&convolution("c, y + ky, x + kx", "m, c, kx, kx"), transform("k0_conv", 2, 1), "no convolution"),
        (&convolution("m, y + ky, x + kx", "m, c, ky, kx"), transform("k0_conv", 2, 1), "no convolution"),
        (&convolution("c, y + ky, 2 * kx", "m, c, ky, kx"), transform("k0_conv", 2, 1), "no convolution"),
    ] {
        let error = realize(program, &decisions).expect_err(expected).to_string();
        assert!(error.contains(expected), "wanted '{expected}', found '{error}'");
    }
}
