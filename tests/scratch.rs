use mcc::driver::{Options, Silent, Stage, compile_graph};
use mcc::graph::interp;
use mcc_support::DType;
use mcc_support::random::Random;
use mcc_tests::random_graph::{Config, random_graph, random_inputs};
#[test]
fn scratch() {
    let seed: u64 = std::env::var("SEED").unwrap().parse().unwrap();
    let config = Config { max_count: 600, dtypes: DType::ALL.to_vec(), ..Config::default() };
    let random = random_graph(&mut Random::new(seed), &config);
    println!("{}", random.graph);
    let inputs = random_inputs(&random.graph, seed);
    let want = interp::run(&random.graph, &inputs).unwrap();
    let options = Options {
        target: "x86_64".into(),
        name: Some("s".into()),
        stop_after: Some(Stage::Decide),
        ..Options::new("random.onnx")
    };
    let c = compile_graph(random.graph.clone(), &options, &mut Silent).unwrap();
    println!("{}", c.program());
    let got = mcc::loops::interp::run(c.program(), &inputs).unwrap();
    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
        println!("lowered output {} {}", random.graph.outputs[i].0, a == b);
    }
    let mut fused = mcc::realize::fuse::Fuser::new(c.program());
    for f in &c.decisions().fusions {
        println!("{f}");
        fused.apply(f).unwrap();
        let p = fused.clone().finish();
        let got = mcc::loops::interp::run(&p, &inputs).unwrap();
        for (i, (a, b)) in got.iter().zip(&want).enumerate() {
            if a != b {
                println!("  output {} differs", random.graph.outputs[i].0);
            }
        }
    }
    println!("{}", fused.finish());
}
