//! Writing what a command makes: all of its files or none.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use mcc_support::{Error, Result};
use tempfile::TempPath;

/// Temporary files that do not have their names yet.
static UNNAMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Writes one file: a reader sees the old one or the whole new one.
///
/// # Errors
///
/// What the file system says.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_all(&[(path, bytes)])
}

/// Writes the files beside their places and, when all are written, gives them their names. Where that fails, none of them is left.
///
/// The first one is that by which a build sees that all is made: it gets its name last, but is the oldest, as of what one command
/// makes `make` takes what is older than the first to be out of date.
///
/// # Errors
///
/// What the file system says.
pub fn write_all<P: AsRef<Path>, B: AsRef<[u8]>>(files: &[(P, B)]) -> Result<()> {
    let written = files.iter().map(|(path, bytes)| temporary(path.as_ref(), bytes.as_ref()).map_err(failed(path.as_ref())));
    let mut written = written.collect::<Result<Vec<Unnamed>>>()?;
    // A signal finds all of them named, or none.
    let mut unnamed = UNNAMED.lock().unwrap_or_else(PoisonError::into_inner);
    for (index, ((path, _), file)) in files.iter().zip(&mut written).enumerate().rev() {
        let temporary = file.0.take().expect("it is named once");
        let place = temporary.to_path_buf();
        let named = temporary.persist(path.as_ref());
        unnamed.remove(&place);
        if let Err(error) = named {
            files[index + 1..].iter().for_each(|(path, _)| drop(std::fs::remove_file(path.as_ref())));
            drop(unnamed);
            return Err(failed(path.as_ref())(error.error));
        }
    }
    Ok(())
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error {
    let place = format!("in file '{}'", path.display());
    // What a library says of its temporary file, with a name that nobody gave, has the reason behind it.
    move |error| {
        let reason = error.get_ref().and_then(std::error::Error::source).map_or_else(|| error.to_string(), ToString::to_string);
        Error::new(format!("cannot write the file: {reason}")).context(place.clone())
    }
}

/// A temporary file, which is removed where it gets no name.
struct Unnamed(Option<TempPath>);

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            UNNAMED.lock().unwrap_or_else(PoisonError::into_inner).remove(path.as_ref() as &Path);
        }
    }
}

fn temporary(path: &Path, bytes: &[u8]) -> std::io::Result<Unnamed> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // Who may read it is for the umask to say, as with any new file; temporary files are private otherwise.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let (mut file, path) = {
        let mut unnamed = UNNAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, path) = builder.tempfile_in(folder)?.into_parts();
        unnamed.insert(path.to_path_buf());
        (file, Unnamed(Some(path)))
    };
    file.write_all(bytes)?;
    Ok(path)
}

/// From here on, an interrupt or a wish to terminate removes temporary files before it ends the process. A hangup does not: `nohup` has
/// it ignored.
#[cfg(unix)]
pub fn clean_up_on_signals() {
    use signal_hook::consts::{SIGINT, SIGTERM};
    // Without it, which no user needs to hear of, files stay behind.
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let unnamed = UNNAMED.lock().unwrap_or_else(PoisonError::into_inner);
            unnamed.iter().for_each(|path| drop(std::fs::remove_file(path)));
            // Ends the process as the signal does by itself.
            drop(signal_hook::low_level::emulate_default_handler(signal));
        }
    });
}

#[cfg(not(unix))]
pub fn clean_up_on_signals() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_written_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write_all(&[(path("a"), "1"), (path("b"), "2")]).unwrap();
        let mut files = vec![(path("none/b"), "4"), (path("a"), "3")];
        // One that cannot be written leaves the others as they were; one that cannot get its name leaves none.
        assert!(write_all(&files).unwrap_err().to_string().contains("none/b"));
        assert_eq!(std::fs::read(path("a")).unwrap(), b"1");
        std::fs::create_dir(path("folder")).unwrap();
        files[0].0 = path("folder");
        assert!(write_all(&files).unwrap_err().to_string().contains("folder"));
        let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["b", "folder"]);
        assert!(UNNAMED.lock().unwrap().iter().all(|path| !path.starts_with(folder.path())));
    }
}
