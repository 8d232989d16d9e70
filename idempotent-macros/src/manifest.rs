//! What the user's Cargo.toml calls the library.
//!
//! Only Cargo knows for certain, and tells no macro. So this reads the manifest line by line, as people and Cargo write
//! it, and is silent about everything that it does not recognise.

use std::path::Path;
use std::{env, fs};

/// The library among the dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dependency {
    /// Under its own name, as far as can be seen.
    ByName,
    /// Under this one.
    Renamed(String),
    /// It is not there.
    Absent,
}

impl Dependency {
    /// As the manifest of the package that is being compiled has it.
    pub(crate) fn find() -> Self {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").map(|folder| Path::new(&folder).join("Cargo.toml"));
        // Whatever builds without Cargo has its own way to name crates.
        manifest.and_then(|path| fs::read_to_string(path).ok()).map_or(Self::ByName, |text| Self::read(&text))
    }

    fn read(manifest: &str) -> Self {
        if !is_mentioned(manifest) {
            return Self::Absent;
        }
        let mut table = String::new();
        let mut renamed = None;
        for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let (key, value) = if let Some(header) = line.strip_prefix('[') {
                table = bare(header.split(']').next().unwrap_or_default());
                (table.clone(), "")
            } else {
                let (key, value) = line.split_once('=').unwrap_or_default();
                (format!("{table}.{}", bare(key)), value)
            };
            // `[dependencies]` and `name = …`, `name.package = …`, or `[dependencies.name]` and `package = …`.
            let mut names = key.split('.').skip_while(|name| !name.ends_with("dependencies")).skip(1);
            let Some(name) = names.next() else { continue };
            if is_mentioned(name) {
                return Self::ByName;
            }
            let package = if names.next() == Some("package") { Some(value) } else { after_package(value) };
            if package.is_some_and(is_the_package) {
                renamed = Some(name.replace('-', "_"));
            }
        }
        // It may stand in a form that is not recognised.
        renamed.map_or(Self::ByName, Self::Renamed)
    }
}

/// A key without quotes and spaces.
fn bare(key: &str) -> String {
    key.replace(['"', '\'', ' '], "")
}

/// What follows `package` in an inline table.
fn after_package(table: &str) -> Option<&str> {
    let (_, after) = table.split_once("package")?;
    Some(after.trim_start().trim_start_matches('='))
}

fn is_the_package(value: &str) -> bool {
    let value = value.trim_start();
    value.starts_with("\"idempotent-runtime\"") || value.starts_with("'idempotent-runtime'")
}

fn is_mentioned(text: &str) -> bool {
    text.contains("idempotent-runtime") || text.contains("idempotent_runtime")
}

#[cfg(test)]
mod tests {
    use super::Dependency::{self, Absent, ByName, Renamed};

    fn renamed(name: &str) -> Dependency {
        Renamed(name.to_owned())
    }

    #[test]
    fn the_usual_dependency_has_its_own_name() {
        for manifest in [
            "[dependencies]\nidempotent-runtime = \"0.1\"",
            "[dependencies]\nidempotent_runtime = { path = \"..\" }",
            "[dependencies]\nidempotent-runtime.workspace = true",
            "[target.'cfg(unix)'.dependencies.idempotent-runtime]\nversion = \"0.1\"",
            "dependencies.idempotent-runtime = \"0.1\"",
            "[dev-dependencies]\nrt = { package = \"idempotent-runtime\" }\n[dependencies]\n\"idempotent-runtime\" = \"0.1\"",
            "[package]\nname = \"idempotent-runtime\"",
            "[dependencies]\nfork = { path = \"../idempotent-runtime\", package = \"a-fork\" }",
        ] {
            assert_eq!(Dependency::read(manifest), ByName, "{manifest}");
        }
    }

    #[test]
    fn a_renamed_dependency_is_found() {
        for manifest in [
            "[dependencies]\nmy-runtime = { version = \"0.1\", package = \"idempotent-runtime\" }",
            "[dependencies]\nmy-runtime = { package = 'idempotent-runtime', features = [\n  \"sqlite\",\n] }",
            "[dependencies.my-runtime] # renamed\nversion = \"0.1\"\npackage = \"idempotent-runtime\"",
            "[dependencies]\nmy-runtime.package = \"idempotent-runtime\"",
            "[dependencies]\nmy-runtime.workspace = true\n[workspace.dependencies]\nmy-runtime = { package=\"idempotent-runtime\" }",
            "[dependencies]\n# idempotent-runtime = \"0.1\"\nmy-runtime = { package = \"idempotent-runtime\" }",
        ] {
            assert_eq!(Dependency::read(manifest), renamed("my_runtime"), "{manifest}");
        }
    }

    #[test]
    fn what_is_not_mentioned_is_not_there() {
        assert_eq!(Dependency::read("[package]\nname = \"shop\"\n[dependencies]\nmessaging = \"1\""), Absent);
    }

    #[test]
    fn what_is_not_understood_is_left_to_the_compiler() {
        let manifest =
            "[dependencies]\nmy-runtime = { features = [\n  \"sqlite\",\n], package = \"idempotent-runtime\" }";
        assert_eq!(Dependency::read(manifest), ByName);
    }
}
