//! Plans of small programs, and that the checker finds what is wrong with damaged ones.

use mcc_support::EntityMap;

use super::check::check;
use super::{MemoryPlan, Place, plan};
use crate::decisions::Layout;
use crate::loops::text::parse;
use crate::loops::{BufferId, Program};

/// `t = f(x)`, `u` from `t` element by element, `v` from all of `u` row by row, `y` from `v` and `t`.
const CHAIN: &str = r#"program "chain" {
  buffer @x : f32[8,16] input 0
  buffer @w : f32[8] constant [1, 2, 3, 4, 5, 6, 7, 8]
  buffer @t : f32[8,16] temporary
  buffer @u : f32[8,16] temporary
  buffer @v : f32[8,16] temporary
  buffer @y : f32[8,16] output 0
  input "x" @x
  output "y" @y
  kernel @k0 (i: spatial 8, j: spatial 16) {
    for i {
      for j {
        @t[i, j] = @x[i, j] * @w[i]
      }
    }
  }
  kernel @k1 (i: spatial 8, j: spatial 16) {
    for i {
      for j {
        @u[i, j] = @t[i, j] - (@t[i, j] + 1.0)
      }
    }
  }
  kernel @k2 (i: spatial 8, j: spatial 16) {
    for i {
      for j {
        @v[i, j] = @u[i, 15 - j]
      }
    }
  }
  kernel @k3 (i: spatial 8, j: spatial 16) {
    for i {
      for j {
        @y[i, j] = @v[i, j] * 2.0
      }
    }
  }
}
"#;

fn planned(text: &str) -> (Program, MemoryPlan) {
    let program = parse(text).unwrap();
    let layouts: EntityMap<BufferId, Layout> =
        program.buffers.values().map(|buffer| Layout::row_major(buffer.ty.rank())).collect();
    let plan = plan(&program, &layouts);
    (program, plan)
}

fn named(program: &Program, name: &str) -> BufferId {
    program.buffers.iter().find(|(_, buffer)| buffer.name == name).unwrap().0
}

fn offset(program: &Program, plan: &MemoryPlan, name: &str) -> usize {
    match plan.places[named(program, name)] {
        Place::Arena { offset, .. } | Place::Weights { offset, .. } => offset,
        other => panic!("'{name}' is at {other:?}"),
    }
}

#[test]
fn what_is_read_in_step_is_overwritten_and_what_is_not_is_kept() {
    let (program, plan) = planned(CHAIN);
    assert_eq!(check(&program, &plan), Vec::<String>::new());
    // Two loads of one element are in step; a mirrored row is not.
    assert_eq!(offset(&program, &plan, "t"), offset(&program, &plan, "u"));
    assert_ne!(offset(&program, &plan, "u"), offset(&program, &plan, "v"));
    assert_eq!((plan.arena_bytes, plan.lower_bound_bytes), (1024, 1024));
    assert_eq!(plan.weights.len(), 32);
}

#[test]
fn an_operand_that_is_read_later_is_not_overwritten() {
    // `x - (x + 1)` in two kernels, and a kernel that stores before it reads again.
    for (what, from, to) in [
        ("read by a later kernel", "@y[i, j] = @v[i, j] * 2.0", "@y[i, j] = @v[i, j] * @t[i, j]"),
        ("read after the store", "@u[i, j] = @t[i, j] - (@t[i, j] + 1.0)", "@u[i, j] = @t[i, j]\n        @v[i, j] = @t[i, j]"),
        ("read in another round", "@u[i, j] = @t[i, j] - (@t[i, j] + 1.0)", "@u[i, j] = @t[i, j] - @t[0, j]"),
        ("read outside", "@u[i, j] = @t[i, j] - (@t[i, j] + 1.0)", "@u[i, j] = (@t[i, j] or 0.0)"),
    ] {
        assert!(CHAIN.contains(from));
        let (program, plan) = planned(&CHAIN.replace(from, to));
        assert_eq!(check(&program, &plan), Vec::<String>::new(), "{what}");
        assert_ne!(offset(&program, &plan, "t"), offset(&program, &plan, "u"), "{what}");
    }
}

#[test]
fn damaged_plans_are_found() {
    let (program, good) = planned(CHAIN);
    let damages: [(&str, &dyn Fn(&mut MemoryPlan)); 7] = [
        ("over 'u', which is live", &|plan| plan.places[named(&program, "v")] = plan.places[named(&program, "u")]),
        ("which is not aligned", &|plan| plan.places[named(&program, "v")] = Place::Arena { offset: 520, size_bytes: 512 }),
        ("but takes 512", &|plan| plan.places[named(&program, "v")] = Place::Arena { offset: 512, size_bytes: 508 }),
        ("bytes at 0 of 256", &|plan| plan.arena_bytes = 256),
        ("has no place", &|plan| plan.places[named(&program, "v")] = Place::Unused),
        ("cannot be at Weights", &|plan| plan.places[named(&program, "v")] = plan.places[named(&program, "w")]),
        ("lies over the status word", &|plan| plan.status_offset = Some(0)),
    ];
    for (expected, damage) in damages {
        let mut plan = good.clone();
        damage(&mut plan);
        let found = check(&program, &plan).join("; ");
        assert!(found.contains(expected), "wanted '{expected}', found '{found}'");
    }
    // Every round but the first would read what the one before stored.
    let again = CHAIN
        .replace("@k1 (i: spatial 8, j: spatial 16)", "@k1 (i: spatial 8, j: spatial 16, r: sequential 2)")
        .replace("@u[i, j] = @t[i, j] - (@t[i, j] + 1.0)", "for r {\n          @u[i, j] = @t[i, j] + 1.0\n        }");
    let (program, mut plan) = planned(&again);
    assert_eq!(check(&program, &plan), Vec::<String>::new());
    plan.places[named(&program, "u")] = plan.places[named(&program, "t")];
    let found = check(&program, &plan).join("; ");
    assert!(found.contains("writes 'u' over 't', which is live"), "found '{found}'");
    for (expected, from, to) in [
        ("loads 'u', which is a f32[8,16], at 1..=16 of 16", "@u[i, 15 - j]", "@u[i, 16 - j]"),
        ("stores 'v', which is a f32[8,16], at 0..=22 of 16", "@v[i, j] = @u", "@v[i, i + j] = @u"),
        ("reads 'u' before it is written", "@t[i, j] = @x[i, j]", "@t[i, j] = @u[i, j]"),
    ] {
        assert!(CHAIN.contains(from));
        let (program, plan) = planned(&CHAIN.replace(from, to));
        let found = check(&program, &plan).join("; ");
        assert!(found.contains(expected), "wanted '{expected}', found '{found}'");
    }
}
