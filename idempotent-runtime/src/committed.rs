//! The catalogue, compared with the file that was committed.

mod differences;
mod table;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use crate::{Catalog, Error};
use differences::differences;
use table::read;

/// The variable that makes [`Catalog::compare_with_file`] write the file instead.
const VARIABLE: &str = "IDEMPOTENT_CATALOG";
const OVERWRITE: &str = "overwrite";

impl Catalog {
    /// For a test: compares the program's handlers with a committed [table](Catalog::to_markdown), and says of each
    /// difference whether it changes the identity of messages, and what that means for those in flight.
    ///
    /// Relative paths begin at the package, where cargo runs tests. To accept what has changed, and to write the file in
    /// the first place: `IDEMPOTENT_CATALOG=overwrite cargo test`, which replaces the whole file.
    ///
    /// In `tests/catalog.rs` of the package that has the handlers:
    ///
    /// ```no_run
    /// # mod your_crate {}
    /// // Without this line the test links no handler.
    /// use your_crate as _;
    ///
    /// # /*
    /// #[test]
    /// # */
    /// fn no_identity_changes_unseen() {
    ///     idempotent_runtime::catalog().compare_with_file("catalog.md").unwrap();
    /// }
    /// ```
    ///
    /// A test sees the handlers of the crates that it names: name each that has some.
    ///
    /// # Errors
    ///
    /// [`CatalogChanged`], whose `Debug` text is made for reading. Also, and even where the file is to be written, for a
    /// program without handlers, and for one of which two have one consumer name: such a file would guard nothing.
    pub fn compare_with_file(&self, path: impl AsRef<Path>) -> Result<(), CatalogChanged> {
        let path = path.as_ref();
        self.comparable()?;
        let overwrite = env::var_os(VARIABLE).is_some_and(|value| value == OVERWRITE);
        let outcome = if overwrite {
            fs::write(path, self.to_markdown()).map_err(|error| format!("cannot be written: {error}"))
        } else {
            match fs::read_to_string(path) {
                Ok(committed) => return self.compare(&committed).map_err(|changed| changed.of(path)),
                Err(error) => Err(format!("cannot be read: {error}. {}", writes_it("it"))),
            }
        };
        outcome.map_err(|problem| CatalogChanged::because(Problem::File(problem)).of(path))
    }

    /// Compares the program's handlers with the text of such a table. What stands around the table is ignored, and so is
    /// the width of its columns.
    ///
    /// Handlers are matched by consumer. The column of functions is not compared, since a handler that moves to another
    /// module keeps its identity; it only serves to tell a renamed handler from a new one.
    ///
    /// # Errors
    ///
    /// [`CatalogChanged`] with every difference, or for a program that has nothing to compare, as
    /// [`compare_with_file`](Self::compare_with_file) has it.
    pub fn compare(&self, committed: &str) -> Result<(), CatalogChanged> {
        self.comparable()?;
        let (old, new) = match (read(committed), read(&self.to_markdown())) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(problem), _) | (_, Err(problem)) => return Err(CatalogChanged::because(Problem::File(problem))),
        };
        let changes = differences(&old, &new);
        if changes.is_empty() { Ok(()) } else { Err(CatalogChanged { changes, path: None, problem: None }) }
    }

    /// A table of these handlers says something about them.
    fn comparable(&self) -> Result<(), CatalogChanged> {
        if self.handlers().is_empty() {
            return Err(CatalogChanged::because(Problem::NoHandler));
        }
        self.check().map_err(|collision| CatalogChanged::because(Problem::Program(Arc::new(collision))))
    }
}

/// How to get a file that is right, of `what`.
fn writes_it(what: &str) -> String {
    format!("{VARIABLE}={OVERWRITE} writes {what}")
}

/// The handlers differ from those that were committed. See [`Catalog::compare_with_file`].
#[derive(Clone)]
pub struct CatalogChanged {
    changes: Vec<CatalogChange>,
    path: Option<PathBuf>,
    problem: Option<Problem>,
}

/// Why there is nothing to compare.
#[derive(Clone)]
enum Problem {
    /// The file, and what it does: the end of a sentence that begins with its name.
    File(String),
    /// The program has none.
    NoHandler,
    /// Two handlers have one name.
    Program(Arc<Error>),
}

impl CatalogChanged {
    /// Every difference, by consumer; empty where the file cannot be read, or the program cannot be compared.
    #[must_use]
    pub fn changes(&self) -> &[CatalogChange] {
        &self.changes
    }

    const fn because(problem: Problem) -> Self {
        Self { changes: Vec::new(), path: None, problem: Some(problem) }
    }

    fn of(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }
}

impl fmt::Display for CatalogChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_ref().map(|path| path.display());
        match (&self.problem, path) {
            (Some(Problem::NoHandler), _) => f.write_str(
                "the catalogue of handlers is empty, since this program links no handler: a test links the crates that it \
                 names, so add `use your_crate as _;` with the name of the library that has the handlers",
            )?,
            (Some(Problem::Program(error)), _) => write!(f, "{error}")?,
            (Some(Problem::File(problem)), Some(path)) => write!(f, "the catalogue of handlers {path} {problem}")?,
            (Some(Problem::File(problem)), None) => write!(f, "the catalogue of handlers {problem}")?,
            (None, Some(path)) => write!(f, "the catalogue of handlers differs from {path}")?,
            (None, None) => f.write_str("the catalogue of handlers differs from the committed one")?,
        }
        for change in &self.changes {
            write!(f, "\n\n{change}")?;
        }
        if !self.changes.is_empty() {
            write!(f, "\n\nIf this is meant: {VARIABLE}={OVERWRITE} cargo test")?;
        }
        Ok(())
    }
}

impl fmt::Debug for CatalogChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CatalogChanged {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Some(Problem::Program(error)) => Some(&**error),
            _ => None,
        }
    }
}

/// One difference between a committed catalogue and the program.
#[derive(Clone, Debug)]
pub struct CatalogChange {
    consumer: String,
    what: String,
    identities: Identities,
    meaning: String,
}

/// Whether a change makes other messages of those that were processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identities {
    /// They stay.
    Stay,
    /// They change.
    Change,
    /// They stay if the new names give the same values.
    Depend,
}

impl CatalogChange {
    /// The consumer: of a renamed one the new name.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Whether processed messages are still recognised.
    #[must_use]
    pub const fn identities(&self) -> Identities {
        self.identities
    }
}

impl fmt::Display for CatalogChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, what, identities, meaning } = self;
        let identities = match identities {
            Identities::Stay => "identities stay",
            Identities::Change => "IDENTITIES CHANGE",
            Identities::Depend => "identities stay only if the values stay",
        };
        write!(f, "`{consumer}`: {what}\n  {identities}: {meaning}")
    }
}
