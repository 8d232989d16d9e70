//! The catalogue, compared with the file that was committed.

mod differences;
mod table;

use std::fmt;
use std::path::Path;
use std::{env, fs};

use crate::Catalog;
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
    /// the first place: `IDEMPOTENT_CATALOG=overwrite cargo test`.
    ///
    /// ```no_run
    /// # /*
    /// #[test]
    /// # */
    /// fn no_identity_changes_unseen() {
    ///     idempotent_runtime::catalog().compare_with_file("catalog.md").unwrap();
    /// }
    /// ```
    ///
    /// A test sees the handlers that are linked into it: make it one of the package that has them all.
    ///
    /// # Errors
    ///
    /// [`CatalogChanged`], whose `Debug` text is made for reading.
    pub fn compare_with_file(&self, path: impl AsRef<Path>) -> Result<(), CatalogChanged> {
        let path = path.as_ref();
        let overwrite = env::var_os(VARIABLE).is_some_and(|value| value == OVERWRITE);
        let outcome = if overwrite {
            fs::write(path, self.to_markdown()).map_err(|error| format!("cannot be written: {error}"))
        } else {
            match fs::read_to_string(path) {
                Ok(committed) => return self.compare(&committed).map_err(|changed| changed.of(path)),
                Err(error) => Err(format!("cannot be read: {error}. {VARIABLE}={OVERWRITE} writes it")),
            }
        };
        outcome.map_err(|problem| CatalogChanged { changes: Vec::new(), problem: Some(problem) }.of(path))
    }

    /// Compares the program's handlers with the text of such a table. What stands around the table is ignored.
    ///
    /// Handlers are matched by consumer. The column of functions is not compared, since a handler that moves to another
    /// module keeps its identity; it only serves to tell a renamed handler from a new one.
    ///
    /// # Errors
    ///
    /// [`CatalogChanged`] with every difference.
    pub fn compare(&self, committed: &str) -> Result<(), CatalogChanged> {
        let (old, new) = match (read(committed), read(&self.to_markdown())) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(problem), _) | (_, Err(problem)) => {
                return Err(CatalogChanged { changes: Vec::new(), problem: Some(problem) });
            }
        };
        let changes = differences(&old, &new);
        if changes.is_empty() { Ok(()) } else { Err(CatalogChanged { changes, problem: None }) }
    }
}

/// The handlers differ from those that were committed. See [`Catalog::compare_with_file`].
#[derive(Clone)]
pub struct CatalogChanged {
    changes: Vec<CatalogChange>,
    problem: Option<String>,
}

impl CatalogChanged {
    /// Every difference, by consumer; empty where the file cannot be read.
    #[must_use]
    pub fn changes(&self) -> &[CatalogChange] {
        &self.changes
    }

    fn of(mut self, path: &Path) -> Self {
        self.problem = Some(match self.problem {
            Some(problem) => format!("{} {problem}", path.display()),
            None => format!("differs from {}", path.display()),
        });
        self
    }
}

impl fmt::Display for CatalogChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the catalogue of handlers {}", self.problem.as_deref().unwrap_or("differs from the committed one"))?;
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

impl std::error::Error for CatalogChanged {}

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
