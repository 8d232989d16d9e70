//! The examples as `cargo test` has built them.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

/// What `cargo test` has built beside this test. Cargo names no path of an example, and `cargo run` would build
/// everything again with other features.
pub(crate) fn example(name: &str) -> Command {
    let test = env::current_exe().expect("the test's own path");
    let profile = test.ancestors().nth(2).expect("deps has a parent");
    let path = profile.join("examples").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    let built = modified(&path);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = fs::read_dir(folder.join("src")).expect("the examples' library");
    let shared = shared.map(|file| file.expect("a file of it").path());
    let changed = shared.chain([folder.join(format!("{name}.rs"))]).map(|source| modified(&source)).max();
    // `--test` with a name builds the test alone.
    assert!(built.is_some() && built >= changed.flatten(), "`{name}` is not built: run `cargo test -p examples`");
    let mut command = Command::new(path);
    command.env_remove("RUST_BACKTRACE");
    command
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
