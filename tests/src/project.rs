//! A project outside of the repository, and an installed mcc.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use mcc::onnx::proto::{ModelProto, StringStringEntryProto};
use prost::Message;

use crate::data;
use crate::machine::{Machine, run, try_run};

/// `cargo install`, once in a run of the tests; the folder of the command.
pub fn installed() -> PathBuf {
    let target = target_folder();
    let root = target.join("tmp/installed");
    fs::create_dir_all(&root).unwrap();
    // Tests are processes of one run, or threads of one process.
    let run_id = std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| std::process::id().to_string());
    let lock = File::create(root.join("lock")).unwrap();
    lock.lock().unwrap();
    let stamp = root.join("run");
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&run_id) {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(data::repository())
            .args(["install", "--quiet", "--debug", "--path", "compiler", "--offline", "--locked"]);
        run(cargo.arg("--root").arg(&root).arg("--target-dir").arg(target));
        fs::write(stamp, run_id).unwrap();
    }
    root.join("bin")
}

/// Where cargo builds: tests are in `deps` of a profile's folder.
pub fn target_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).expect("a test is built in a folder of cargo's").to_path_buf()
}

/// A copy of an example, in a folder that is gone in the end.
#[derive(Debug)]
pub struct Project {
    /// Keeps the folder.
    _temporary: tempfile::TempDir,
    pub folder: PathBuf,
    /// Where mcc is, as in an installed prefix: a script that counts.
    pub prefix: PathBuf,
}

impl Project {
    pub fn new(example: &str) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("a project");
        let prefix = temporary.path().join("some prefix");
        copy(&data::repository().join("examples").join(example), &folder);
        externalize(&folder.join("digits.onnx"), "digits.bin");
        let mcc = installed().join("mcc");
        fs::create_dir_all(prefix.join("bin")).unwrap();
        let script = format!("#!/bin/sh\necho \"$*\" >> '{}'\nexec '{}' \"$@\"\n", prefix.join("log").display(), mcc.display());
        executable(&prefix.join("bin/mcc"), &script);
        run(Command::new(mcc).arg("install-files").arg(&prefix));
        Self { _temporary: temporary, folder, prefix }
    }

    pub fn command(&self, line: &str) -> Command {
        let path = format!("{}:{}", self.prefix.join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.current_dir(&self.folder).env("PATH", path).env("XDG_CACHE_HOME", self.folder.join("cache")).args(["-c", line]);
        command
    }

    pub fn run(&self, line: &str) -> String {
        String::from_utf8(run(&mut self.command(line))).unwrap()
    }

    /// Both outputs of a command that fails.
    pub fn fail(&self, line: &str) -> String {
        try_run(&mut self.command(&format!("({line}) 1>&2"))).expect_err("this fails")
    }

    /// How many models were compiled.
    pub fn compiles(&self) -> usize {
        let log = fs::read_to_string(self.prefix.join("log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(".onnx")).count()
    }

    pub fn touch(&self, file: &str) {
        File::options().append(true).open(self.folder.join(file)).unwrap().set_modified(SystemTime::now()).unwrap();
    }

    pub fn edit(&self, (file, old, new): (&str, &str, &str)) {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{file} has no {old}");
        fs::write(path, text.replace(old, new)).unwrap();
    }

    /// The program tells which digit is in each image.
    pub fn classify(&self, program: &str, machine: Machine) {
        let images: Vec<String> =
            (0..10).map(|digit| format!("{}/examples/images/{digit}.pgm", data::repository().display())).collect();
        let output = run(machine.program(&self.folder.join(program)).args(&images));
        let want: String = images.iter().enumerate().map(|(digit, image)| format!("{image}: {digit}\n")).collect();
        assert_eq!(String::from_utf8(output).unwrap(), want);
    }
}

/// Copies a folder; what links lead to is copied.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copied = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            fs::copy(&path, &copied).unwrap();
        }
    }
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// Moves the weights of a model into a file beside it.
fn externalize(path: &Path, name: &str) {
    let mut model = ModelProto::decode(&*fs::read(path).unwrap()).unwrap();
    let mut payload = Vec::new();
    for tensor in &mut model.graph.as_mut().unwrap().initializer {
        let Some(raw) = tensor.raw_data.take() else { continue };
        let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.to_string()), value: Some(value) };
        tensor.external_data = vec![
            entry("location", name.to_string()),
            entry("offset", payload.len().to_string()),
            entry("length", raw.len().to_string()),
        ];
        tensor.data_location = Some(1);
        payload.extend_from_slice(&raw);
    }
    assert!(payload.len() > 1000, "the model has weights");
    fs::write(path.with_file_name(name), payload).unwrap();
    fs::write(path, model.encode_to_vec()).unwrap();
}
