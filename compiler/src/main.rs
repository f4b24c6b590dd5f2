//! The command `mcc`.

fn main() -> std::process::ExitCode {
    mcc::tools::main()
}
